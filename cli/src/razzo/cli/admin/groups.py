"""Consumer groups: create, change, delete, list, and their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from razzo.cli.admin.target import Target, table, targeted
from razzo.cli.values import DURATIONS

if TYPE_CHECKING:
    from razzo.v1.admin_pb2 import GroupPosition, GroupStatus
    from razzo.v1.config_pb2 import GroupConfig

ATTEMPTS_DEFAULT = 17
"""RocketMQ's: one delivery and 16 more."""

ATTEMPTS_MAX = 1_000


def group_document(group: GroupConfig) -> dict[str, Any]:
    """A consumer group's settings as the JSON answers show them."""
    policy = group.retry_policy
    return {
        "name": group.name,
        "fifo": group.fifo,
        "max_attempts": group.retry_max_times + 1,
        "retry_delays_ms": list(policy.delays_ms),
        "retry_exponential": (
            {
                "initial_ms": policy.exponential.initial_ms,
                "max_ms": policy.exponential.max_ms,
                "multiplier": policy.exponential.multiplier,
            }
            if policy.HasField("exponential")
            else None
        ),
        "consume_enabled": group.consume_enabled,
        "lite_topic": group.lite_bind_topic or None,
        "attributes": dict(group.attributes),
    }


def position_document(position: GroupPosition) -> dict[str, Any]:
    """Where a consumer group is in one queue."""
    return {
        "topic": position.topic,
        "queue_id": position.queue_id,
        "committed_offset": position.committed_offset,
        "next_offset": position.next_offset,
        "outstanding": position.outstanding,
        "max_offset": position.max_offset,
    }


def position_words(positions: list[dict[str, Any]]) -> str:
    return table(
        ("TOPIC", "QUEUE", "COMMITTED", "NEXT", "OUTSTANDING", "END"),
        [
            (
                position["topic"],
                position["queue_id"],
                position["committed_offset"],
                position["next_offset"],
                position["outstanding"],
                position["max_offset"],
            )
            for position in positions
        ],
    )


@click.command("create-group")
@click.argument("name")
@click.option("--fifo", is_flag=True, help="Messages of one message group are consumed one after the other.")
@click.option(
    "--max-attempts",
    type=click.IntRange(1, ATTEMPTS_MAX),
    default=ATTEMPTS_DEFAULT,
    show_default=True,
    help="Deliveries of a message before it goes to the dead letters.",
)
@click.option(
    "--retry-delays",
    type=DURATIONS,
    metavar="1s,5s,...",
    help="Waits before each further delivery; the last one repeats. [default: RocketMQ's levels, 1s to 2h]",
)
@click.option("--lite", "lite_topic", metavar="TOPIC", default="", help="A group for the lite topics of TOPIC.")
@click.option("--update", is_flag=True, help="Change the group when it is there already.")
@targeted
def create_group(
    target: Target,
    name: str,
    fifo: bool,
    max_attempts: int,
    retry_delays: tuple[int, ...] | None,
    lite_topic: str,
    update: bool,
) -> None:
    """Create the consumer group NAME, or change it with --update."""
    from razzo.v1.admin_pb2 import PutGroupRequest
    from razzo.v1.config_pb2 import GroupConfig, RetryPolicy

    wanted = GroupConfig(
        name=name,
        fifo=fifo,
        retry_max_times=max_attempts - 1,
        retry_policy=RetryPolicy(delays_ms=retry_delays) if retry_delays else None,
        consume_enabled=True,
        lite_bind_topic=lite_topic,
    )
    group = group_document(target.put("PutGroup", PutGroupRequest(group=wanted), update).group)
    target.answer(
        {"group": group}, lambda: f"{name}: {'FIFO, ' if group['fifo'] else ''}{group['max_attempts']} attempts"
    )


@click.command("delete-group")
@click.argument("name")
@targeted
def delete_group(target: Target, name: str) -> None:
    """Delete the consumer group NAME and its positions on every broker."""
    from razzo.v1.admin_pb2 import DeleteGroupRequest

    with target.admin() as (stub, call):
        call(stub.DeleteGroup, DeleteGroupRequest(name=name))
    target.answer({"deleted": name}, lambda: f"{name}: deleted")


@click.command()
@targeted
def groups(target: Target) -> None:
    """List consumer groups, a row for each broker, and how far they are."""
    from razzo.v1.admin_pb2 import ListGroupsRequest

    def document(status: GroupStatus) -> dict[str, Any]:
        return {
            **group_document(status.group),
            "broker_name": status.broker_name,
            "client_ids": list(status.client_ids),
            "positions": [position_document(position) for position in status.positions],
        }

    with target.admin() as (stub, call):
        found = [document(status) for status in call(stub.ListGroups, ListGroupsRequest()).groups]
    target.answer(
        {"groups": found},
        lambda: table(
            ("GROUP", "BROKER", "FIFO", "ATTEMPTS", "CLIENTS", "TOPICS", "OUTSTANDING", "BEHIND"),
            [
                (
                    group["name"],
                    group["broker_name"],
                    "yes" if group["fifo"] else "no",
                    group["max_attempts"],
                    len(group["client_ids"]),
                    ",".join(sorted({position["topic"] for position in group["positions"]})) or "-",
                    sum(position["outstanding"] for position in group["positions"]),
                    sum(max(0, position["max_offset"] - position["next_offset"]) for position in group["positions"]),
                )
                for group in found
            ],
        ),
    )


@click.command("reset-offset")
@click.argument("group")
@click.argument("topic")
@click.argument("unix_millis", type=click.IntRange(0))
@targeted
def reset_offset(target: Target, group: str, topic: str, unix_millis: int) -> None:
    """Move GROUP on TOPIC to the first message stored at or after UNIX_MILLIS; 0 is the earliest one.

    Messages that are handed out and not acknowledged may be handed out again.
    """
    from razzo.v1.admin_pb2 import ResetOffsetRequest

    with target.admin() as (stub, call):
        request = ResetOffsetRequest(group=group, topic=topic, timestamp_ms=unix_millis)
        positions = [position_document(position) for position in call(stub.ResetOffset, request).positions]
    target.answer({"positions": positions}, lambda: position_words(positions))
