"""The group `razzo admin` and the table of its commands."""

from __future__ import annotations

import click

from razzo.cli.admin.target import ENDPOINT_DEFAULT, ENDPOINT_VARIABLE, Target, endpoint_option, json_option
from razzo.cli.main import LazyCommand, LazyGroup
from razzo.cli.values import ENDPOINT

TOPICS, GROUPS, MESSAGES, CLIENT = (
    f"razzo.cli.admin.{module}" for module in ("topics", "groups", "messages", "client")
)


@click.group(
    cls=LazyGroup,
    table={
        "create-topic": LazyCommand(TOPICS, "create_topic", "Create a topic, or change one."),
        "delete-topic": LazyCommand(TOPICS, "delete_topic", "Delete a topic and its queues."),
        "topics": LazyCommand(TOPICS, "topics", "List topics with the offsets of their queues."),
        "route": LazyCommand(TOPICS, "route", "Show where the queues of a topic are."),
        "brokers": LazyCommand(TOPICS, "brokers", "List the brokers of the cluster."),
        "create-group": LazyCommand(GROUPS, "create_group", "Create a consumer group, or change one."),
        "delete-group": LazyCommand(GROUPS, "delete_group", "Delete a consumer group and its positions."),
        "groups": LazyCommand(GROUPS, "groups", "List consumer groups with their positions."),
        "reset-offset": LazyCommand(GROUPS, "reset_offset", "Move a consumer group to a point in time."),
        "message": LazyCommand(MESSAGES, "message", "Find stored messages by id or key."),
        "produce": LazyCommand(CLIENT, "produce", "Send messages as a client does."),
        "consume": LazyCommand(CLIENT, "consume", "Receive messages as a client does."),
    },
)
@endpoint_option
@json_option
@click.pass_context
def admin(ctx: click.Context, endpoint: str | None, as_json: bool | None) -> None:
    """Topics, consumer groups and messages of a running cluster.

    Exit code 0 means that it took effect; otherwise one line on standard error says why it did not.
    """
    import os

    if endpoint is None:
        endpoint = ENDPOINT.convert(os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT_DEFAULT, None, ctx)
    ctx.obj = Target(endpoint, bool(as_json))
