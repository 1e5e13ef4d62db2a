"""PullMessage, UpdateOffset, GetOffset, QueryOffset: reading a queue by offset, and moving a group's position by hand.

No official client calls them (client-protocol.md 8); tools and own clients do. A group's position is the one that
ReceiveMessage works with: its lowest offset that is not acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker import filters, outgoing
from razzo.broker.broker import Broker
from razzo.broker.receiving import READ_BYTES_MAX, check_readable, hashes_of
from razzo.broker.topics import Topic
from razzo.door.methods import Call
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.names import check_group
from razzo.protocol.properties import TAGS
from razzo.runtime.requests import client_id_of, effective_name, namespace_of, request_id_of
from razzo.runtime.status import ok, status_of
from razzo.storage import ReadStatus, StoredMessage

Policy = definition_pb2.QueryOffsetPolicy
_OUT_OF_RANGE = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY)


class PullDesk:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._numbers = itertools.count(1)

    async def refuse(self, error: RequestRefused, call: Call) -> None:
        await call.write_raw(outgoing.refused_pull_frames(status_of(error)))

    async def pull(self, request: service_pb2.PullMessageRequest, call: Call) -> None:
        """Serves a stream of PullMessage, decoded by `ClientApi`."""
        try:
            client_id_of(call)
            messages, next_offset = await self._pull(request, call)
        except Exception as error:
            await call.write_raw(outgoing.refused_pull_frames(status_of(error, request_id_of(call))))
        else:
            await call.write_raw(outgoing.pull_frames(request.message_queue.topic, messages, next_offset))

    async def _pull(self, request: service_pb2.PullMessageRequest, call: Call) -> tuple[list[StoredMessage], int]:
        broker = self._broker
        tag_filter = filters.parse(request.filter_expression.type, request.filter_expression.expression)
        topic = self._queue_of(request.message_queue, call)
        group = await broker.ensure_group(effective_name(request.group, namespace_of(call)))
        check_readable(topic, group)
        hashes = hashes_of(tag_filter)
        queue_id, offset = request.message_queue.id, request.offset
        count = min(max(request.batch_size, 1), limits.RECEIVE_MESSAGES_MAX)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _poll_s(request, call)
        key = (f"pull {next(self._numbers)}", topic.name)  # a waiter of its own: pulls do not compete
        while True:
            result = broker.store.read(topic.name, queue_id, offset, count, READ_BYTES_MAX, hashes)
            if result.status in _OUT_OF_RANGE or (result.next_offset != offset and offset > result.next_offset):
                raise RequestRefused(
                    Code.ILLEGAL_OFFSET, f"the queue has no offset {offset}, go on from {result.next_offset}"
                )
            found = [each for each in result.messages if tag_filter.matches(each.properties.get(TAGS))]
            offset = result.next_offset
            if found:
                return found, offset
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                return [], offset
            if result.status is ReadStatus.NO_MATCHED_MESSAGE or result.messages:
                await asyncio.sleep(0)
            elif not await broker.long_polls.wait(key, remaining_s):
                return [], offset

    async def update_offset(
        self, request: service_pb2.UpdateOffsetRequest, call: Call
    ) -> service_pb2.UpdateOffsetResponse:
        broker = self._broker
        topic = self._queue_of(request.message_queue, call)
        group = await broker.ensure_group(effective_name(request.group, namespace_of(call)))
        first, end = broker.store.queue_range(topic.name, request.message_queue.id)
        if not first <= request.offset <= end:
            raise RequestRefused(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}, must be {first} to {end}")
        broker.subscribe(group.name, topic)
        broker.delivery.reset(group.name, topic.name, request.message_queue.id, request.offset)
        broker.touched()
        return service_pb2.UpdateOffsetResponse(status=ok())

    async def get_offset(self, request: service_pb2.GetOffsetRequest, call: Call) -> service_pb2.GetOffsetResponse:
        topic = self._queue_of(request.message_queue, call)
        group = effective_name(request.group, namespace_of(call))
        check_group(group)
        for position in self._broker.delivery.positions(group, topic.name):
            if position.queue_id == request.message_queue.id:
                return service_pb2.GetOffsetResponse(status=ok(), offset=position.floor)
        raise RequestRefused(Code.OFFSET_NOT_FOUND, f"the group {group!r} has no position on this queue")

    async def query_offset(
        self, request: service_pb2.QueryOffsetRequest, call: Call
    ) -> service_pb2.QueryOffsetResponse:
        topic = self._queue_of(request.message_queue, call)
        queue_id = request.message_queue.id
        first, end = self._broker.store.queue_range(topic.name, queue_id)
        match request.query_offset_policy:
            case Policy.BEGINNING:
                offset = first
            case Policy.END:
                offset = end
            case Policy.TIMESTAMP:
                if not request.HasField("timestamp"):
                    raise RequestRefused(Code.BAD_REQUEST, "the policy is TIMESTAMP and there is no timestamp")
                offset = self._broker.store.offset_by_time(topic.name, queue_id, request.timestamp.ToMilliseconds())
            case other:
                raise RequestRefused(Code.BAD_REQUEST, f"there is no query offset policy {other}")
        return service_pb2.QueryOffsetResponse(status=ok(), offset=offset)

    def _queue_of(self, queue: definition_pb2.MessageQueue, call: Call) -> Topic:
        """The topic of the queue a request names, which must be one of its queues."""
        topic = self._broker.topics.get(effective_name(queue.topic, namespace_of(call)))
        if not 0 <= queue.id < topic.read_queues:
            raise RequestRefused(
                Code.BAD_REQUEST, f"the queue id is {queue.id}, the topic has queues 0 to {topic.read_queues - 1}"
            )
        return topic


def _poll_s(request: service_pb2.PullMessageRequest, call: Call) -> float:
    poll_ms = float(min(max(request.long_polling_timeout.ToMilliseconds(), 0), limits.POLL_MS_MAX))
    remaining_s = call.time_remaining()
    if remaining_s is not None:
        poll_ms = min(poll_ms, remaining_s * 1000 - limits.POLL_RESERVE_MS)
    return max(poll_ms, 0.0) / 1000
