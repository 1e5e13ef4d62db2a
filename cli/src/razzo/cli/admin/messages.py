"""Messages as they are stored: found by id or by key."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import click

from razzo.cli.admin.target import Target, targeted
from razzo.cli.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from razzo.v1.admin_pb2 import StoredMessage

COUNT_DEFAULT = 32
COUNT_MAX = 1_000


def body_fields(body: bytes) -> dict[str, str]:
    """A body as JSON can hold it: `body` when it is UTF-8 text, else `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def message_document(found: StoredMessage) -> dict[str, Any]:
    """A stored message as the JSON answer shows it."""
    return {
        "message_id": found.message_id,
        "offset_message_id": found.offset_message_id,
        "broker_name": found.broker_name,
        "topic": found.topic,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "physical_offset": found.physical_offset,
        "store_timestamp_ms": found.store_timestamp_ms,
        "born_timestamp_ms": found.born_timestamp_ms,
        "born_host": found.born_host,
        "store_host": found.store_host,
        "sys_flag": found.sys_flag,
        "reconsume_times": found.reconsume_times,
        "properties": dict(found.properties),
        **body_fields(found.body),
    }


def in_words(document: dict[str, Any]) -> str:
    """One field a line."""
    return "\n".join(
        f"{name + ':':<20} {json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value}"
        for name, value in document.items()
    )


@click.command()
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--key", help="Find by key instead of by id; needs --topic.")
@click.option("--topic", default="", help="Only messages of this topic.")
@click.option(
    "--max", "max_count", type=click.IntRange(1, COUNT_MAX), default=COUNT_DEFAULT, show_default=True, help="Not more."
)
@targeted
def message(target: Target, message_id: str | None, key: str | None, topic: str, max_count: int) -> None:
    """Find stored messages by ID (the client's, or RocketMQ's offset id) or by --key."""
    from razzo.v1.admin_pb2 import FindMessagesRequest

    if (message_id is None) == (key is None):
        raise click.UsageError("give an ID or --key, one of both")
    if key is not None and not topic:
        raise click.UsageError("--key needs --topic")
    request = FindMessagesRequest(message_id=message_id or "", key=key or "", topic=topic, max_count=max_count)
    with target.admin() as (stub, call):
        found = [message_document(stored) for stored in call(stub.FindMessages, request).messages]
    if not found:
        raise CommandFailed(Exit.NOTHING, f"no message with the {'id' if message_id else 'key'} {message_id or key}")
    target.answer({"messages": found}, lambda: "\n\n".join(map(in_words, found)))
