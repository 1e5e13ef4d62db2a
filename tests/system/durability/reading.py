"""Reads whole queues without a consumer group (PullMessage)."""

from __future__ import annotations

from dataclasses import dataclass

from official.raw_client import TIMEOUT_S, RawClient

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s

PULL_BATCH = 32
PULL_TIMEOUT_S = 20.0
ENDS = (d.MESSAGE_NOT_FOUND, d.ILLEGAL_OFFSET)


@dataclass(frozen=True)
class Pulled:
    queue_id: int
    message: d.Message


def queue_end(raw: RawClient, queue: d.MessageQueue) -> int:
    """The offset after the last message of a queue."""
    answer = stub_of(raw, queue).QueryOffset(
        s.QueryOffsetRequest(message_queue=queue, query_offset_policy=d.END),
        metadata=raw.metadata,
        timeout=TIMEOUT_S,
    )
    assert answer.status.code == d.OK, answer.status
    return int(answer.offset)


def pull_queue(raw: RawClient, queue: d.MessageQueue, offset: int, end: int) -> list[Pulled]:
    """The messages of a queue from `offset` up to `end` (not included)."""
    found: list[Pulled] = []
    while offset < end:
        messages, next_offset = pull(raw, queue, offset)
        found += [Pulled(queue.id, message) for message in messages]
        assert next_offset > offset, f"queue {queue.id} stands still at {offset}, its end is {end}"
        offset = next_offset
    return found


def pull(raw: RawClient, queue: d.MessageQueue, offset: int) -> tuple[list[d.Message], int]:
    """One PullMessage: the messages and the next offset; none and the same offset at the end of the queue."""
    request = s.PullMessageRequest(
        group=d.Resource(name="durability-reader"),
        message_queue=queue,
        offset=offset,
        batch_size=PULL_BATCH,
        filter_expression=d.FilterExpression(type=d.TAG, expression="*"),
    )
    request.long_polling_timeout.FromMilliseconds(1)
    messages: list[d.Message] = []
    next_offset = offset
    for element in stub_of(raw, queue).PullMessage(request, metadata=raw.metadata, timeout=PULL_TIMEOUT_S):
        kind = element.WhichOneof("content")
        if kind == "message":
            messages.append(element.message)
        elif kind == "next_offset":
            next_offset = element.next_offset
        else:
            assert element.status.code in (d.OK, *ENDS), element.status
    return messages, next_offset


def stub_of(raw: RawClient, queue: d.MessageQueue) -> object:
    address = queue.broker.endpoints.addresses[0]
    return raw.stub(f"{address.host}:{address.port}")
