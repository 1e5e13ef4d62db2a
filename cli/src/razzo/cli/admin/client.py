"""`produce` and `consume`: what a client program does, from the command line, over the public API."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from razzo.cli.admin.messages import body_fields, in_words
from razzo.cli.admin.target import Target, targeted
from razzo.cli.exits import CommandFailed, Exit
from razzo.cli.values import DURATION, PAIR

if TYPE_CHECKING:
    from apache.rocketmq.v2.definition_pb2 import Message
    from razzo.cli.messaging import Sent

BATCH_MAX = 32
"""Messages of one receive; the server gives no more."""

POLL_S_MAX = 5.0
"""How long one broker of several is asked before it is the next one's turn."""


@click.command()
@click.argument("topic")
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option("--tag", help="The messages' tag.")
@click.option("--key", "keys", multiple=True, help="A key to find them by; may be repeated.")
@click.option("--property", "properties", type=PAIR, multiple=True, help="A property; may be repeated.")
@click.option("--message-group", help="FIFO: messages of one message group stay in order.")
@click.option("--delay", "delay_ms", type=DURATION, metavar="5s", help="DELAY: deliver them so much later.")
@click.option("--deliver-at", "deliver_at_ms", type=click.IntRange(0), metavar="UNIX_MILLIS", help="DELAY: or then.")
@click.option("--priority", type=click.IntRange(0), help="PRIORITY: higher ones come first.")
@click.option("--lite-topic", help="LITE: the lite topic below TOPIC.")
@targeted
def produce(
    target: Target,
    topic: str,
    bodies: tuple[str, ...],
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    message_group: str | None,
    delay_ms: int | None,
    deliver_at_ms: int | None,
    priority: int | None,
    lite_topic: str | None,
) -> None:
    """Send each BODY as a message to TOPIC; without any, each line of standard input.

    The type of the messages follows from the options. A failure ends the command; what was sent before stays sent.
    """
    from apache.rocketmq.v2 import definition_pb2 as pb
    from razzo.cli.messaging import Session, message_id, writable

    kind = message_type(message_group, delay_ms, deliver_at_ms, priority, lite_topic)

    def message(body: bytes) -> pb.Message:
        own = pb.SystemProperties(
            tag=tag,
            keys=keys,
            message_id=message_id(),
            message_type=kind,
            body_encoding=pb.IDENTITY,
            message_group=message_group,
            priority=priority,
            lite_topic=lite_topic,
        )
        now_ms = time.time_ns() // 1_000_000
        own.born_timestamp.FromMilliseconds(now_ms)
        if kind == "DELAY":
            own.delivery_timestamp.FromMilliseconds(now_ms + delay_ms if delay_ms is not None else deliver_at_ms or 0)
        return pb.Message(
            topic=pb.Resource(name=topic), user_properties=dict(properties), system_properties=own, body=body
        )

    with Session(target.endpoint) as session:
        queues = writable(session.route(topic), topic)
        session.open_producer(topic, queues)
        pieces = (os.fsencode(body) for body in bodies) if bodies else _lines(sys.stdin.buffer)
        report(target, session.send(queues, map(message, pieces)))


def message_type(
    message_group: str | None,
    delay_ms: int | None,
    deliver_at_ms: int | None,
    priority: int | None,
    lite_topic: str | None,
) -> str:
    """The type that follows from the options. click.UsageError when they want more than one."""
    kinds = (("FIFO", message_group), ("DELAY", delay_ms), ("DELAY", deliver_at_ms), ("PRIORITY", priority))
    wanted = [kind for kind, option in (*kinds, ("LITE", lite_topic)) if option is not None]
    if len(wanted) > 1:
        raise click.UsageError(
            "a message has one type: use one of --message-group, --delay, --deliver-at, --priority, --lite-topic"
        )
    return wanted[0] if wanted else "NORMAL"


def report(target: Target, results: Iterator[Sent]) -> None:
    """Says what was sent. CommandFailed when something was not; nothing more is sent after the first failure."""
    sent: list[dict[str, Any]] = []
    first: CommandFailed | None = None
    for result in results:
        if result.failed is None:
            handle = {"recall_handle": result.recall_handle} if result.recall_handle else {}
            sent.append({"message_id": result.message_id, "offset": result.offset, **handle})
        elif first is None:
            first = result.failed
    if sent or first is None:
        target.answer({"sent": sent}, lambda: "\n".join(document["message_id"] for document in sent))
    if first is not None:
        raise CommandFailed(first.code, first.message + (f" (sent before: {len(sent)})" if sent else ""))


def _lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    for line in stream:
        yield line.rstrip(b"\r\n")


@click.command()
@click.argument("topic")
@click.option("--group", required=True, help="The consumer group to receive for.")
@click.option("--max", "max_count", type=click.IntRange(1), default=1, show_default=True, help="End after so many.")
@click.option(
    "--wait", "wait_ms", type=DURATION, default="10s", show_default=True, help="End after so long, whatever has come."
)
@click.option("--ack/--no-ack", default=True, show_default=True, help="Acknowledge them, or leave them leased.")
@click.option(
    "--invisible", "invisible_ms", type=DURATION, default="30s", show_default=True, help="Length of the lease."
)
@click.option("--filter", "tags", metavar="TAGS", default="*", show_default=True, help="Only these tags: 'a || b'.")
@click.option("--sql", help="Only messages whose properties fulfil this SQL-92 condition.")
@click.option("--from-start", is_flag=True, help="First move the group to the earliest message.")
@targeted
def consume(
    target: Target,
    topic: str,
    group: str,
    max_count: int,
    wait_ms: int,
    ack: bool,
    invisible_ms: int,
    tags: str,
    sql: str | None,
    from_start: bool,
) -> None:
    """Receive messages of TOPIC for a consumer group, as a client does.

    A group that never read TOPIC begins with what comes after its first receive, unless --from-start. Exit code 5 when
    no message came.
    """
    if sql is not None and tags != "*":
        raise click.UsageError("--filter and --sql exclude each other")
    if wait_ms == 0:
        raise click.UsageError("--wait must be more than 0")

    from apache.rocketmq.v2 import definition_pb2 as pb
    from razzo.cli.messaging import Session, readable

    expression = pb.FilterExpression(type=pb.TAG if sql is None else pb.SQL, expression=tags if sql is None else sql)
    if from_start:
        _to_the_start(target, group, topic)
    received: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + wait_ms / 1_000
    with Session(target.endpoint) as session:
        queues = readable(session.route(topic), topic)
        session.open_consumer(topic, group, expression, queues)
        for queue in itertools.cycle(queues):
            remaining_s = deadline_s - time.monotonic()
            if len(received) >= max_count or remaining_s <= 0:
                break
            poll_s = remaining_s if len(queues) == 1 else min(remaining_s, POLL_S_MAX)
            count = min(BATCH_MAX, max_count - len(received))
            messages = session.receive(queue, expression, count, poll_s, invisible_ms)
            for message in messages:
                received.append(received_document(message))
                if not target.as_json:
                    click.echo(in_words(received[-1]) + "\n")
            if messages and ack:
                session.acknowledge(queue, messages)
    if not received:
        raise CommandFailed(Exit.NOTHING, f"no message of {topic} for {group} within {wait_ms / 1_000:g} s")
    if target.as_json:
        click.echo(json.dumps({"messages": received}, ensure_ascii=False))


def _to_the_start(target: Target, group: str, topic: str) -> None:
    from razzo.v1.admin_pb2 import ResetOffsetRequest

    with target.admin() as (stub, call):
        call(stub.ResetOffset, ResetOffsetRequest(group=group, topic=topic, timestamp_ms=0))


def received_document(message: Message) -> dict[str, Any]:
    """A message as a consumer gets it, without the fields it does not have."""
    own = message.system_properties
    document: dict[str, Any] = {
        "message_id": own.message_id,
        "topic": message.topic.name,
        **body_fields(message.body),
        "properties": dict(message.user_properties),
        "keys": list(own.keys),
        "queue_id": own.queue_id,
        "queue_offset": own.queue_offset,
        "delivery_attempt": own.delivery_attempt,
        "born_timestamp_ms": own.born_timestamp.ToMilliseconds(),
        "store_timestamp_ms": own.store_timestamp.ToMilliseconds(),
        "receipt_handle": own.receipt_handle,
    }
    for name in ("tag", "message_group", "priority", "lite_topic"):
        if own.HasField(name):
            document[name] = getattr(own, name)
    if own.HasField("delivery_timestamp"):
        document["delivery_timestamp_ms"] = own.delivery_timestamp.ToMilliseconds()
    if own.HasField("dead_letter_queue"):
        source = own.dead_letter_queue
        document["dead_letter_of"] = {"topic": source.topic, "message_id": source.message_id}
    return document
