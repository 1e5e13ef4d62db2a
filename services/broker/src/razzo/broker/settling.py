"""What consumers say about messages they have: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

An ack of a message that is done already is OK; one that names a delivery that was followed by another is
INVALID_RECEIPT_HANDLE, the only answer at which push consumers stop repeating it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from google.protobuf.message import DecodeError

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker.broker import Broker
from razzo.broker.dead_letters import DeadLetters, Reason
from razzo.broker.foreign import Foreign
from razzo.broker.handles import Receipt, context_of
from razzo.broker.lease_queue import Outcome
from razzo.broker.outgoing import message_id_of
from razzo.door.methods import BatchCall, Call, answer_many
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.methods import ACK_MESSAGE
from razzo.runtime.requests import ack_names, client_id_of, names_of, namespace_of, request_id_of
from razzo.runtime.status import ok, status_of
from razzo.runtime.status import status as status_with

ALL_TIME_MS = (1 << 63) - 1
SAME_ID_MESSAGES_MAX = 32
"""Messages with one id that are looked at to find the one that a consumer has."""


class AckDesk:
    """Mount `handle` as a unary batch handler. A compiled path may take the easy calls first, as for sends."""

    def __init__(
        self, broker: Broker, foreign: Foreign, first: Callable[[list[BatchCall]], list[BatchCall]] | None = None
    ) -> None:
        self._broker = broker
        self._foreign = foreign
        self._first = first
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, calls: list[BatchCall]) -> None:
        if self._first is not None:
            calls = self._first(calls)
        answered: list[BatchCall] = []
        responses: list[bytes] = []
        for call in calls:
            try:
                answer = self._ack(call)
            except Exception as error:
                answer = _refused(error, call)
            if answer is not None:
                answered.append(call)
                responses.append(answer.SerializeToString())
        self._broker.touched()
        answer_many(answered, responses)

    def _ack(self, call: BatchCall) -> service_pb2.AckMessageResponse | None:
        """None when some entries belong to another broker: the call is answered when that one has answered."""
        client_id_of(call)
        try:
            request = service_pb2.AckMessageRequest.FromString(call.request)
        except DecodeError as error:
            raise RequestRefused(Code.BAD_REQUEST, "not an AckMessageRequest") from error
        group, topic = ack_names(request, namespace_of(call))
        context = context_of(group, topic)
        statuses: list[definition_pb2.Status | None] = []
        elsewhere: dict[str, list[int]] = {}
        for index, entry in enumerate(request.entries):
            try:
                receipt = self._broker.handles.read(context, entry.receipt_handle)
            except RequestRefused as refused:
                owner = self._foreign.owner_of_receipt(entry.receipt_handle, call)
                statuses.append(None if owner else status_of(refused))
                if owner:
                    elsewhere.setdefault(owner, []).append(index)
                continue
            key = (group, topic, receipt.queue_id)
            outcome = self._broker.delivery.ack(key, receipt.queue_offset, receipt.attempt, receipt.pop_ms)
            statuses.append(stale_status() if outcome is Outcome.STALE else ok())
        if not elsewhere:
            return ack_response(request, [status for status in statuses if status is not None])
        task = asyncio.get_running_loop().create_task(self._ack_elsewhere(call, request, statuses, elsewhere))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    async def _ack_elsewhere(
        self,
        call: BatchCall,
        request: service_pb2.AckMessageRequest,
        statuses: list[definition_pb2.Status | None],
        elsewhere: dict[str, list[int]],
    ) -> None:
        for owner, indexes in elsewhere.items():
            part = service_pb2.AckMessageRequest(group=request.group, topic=request.topic)
            part.entries.extend(request.entries[index] for index in indexes)
            try:
                raw = await self._foreign.unary(owner, ACK_MESSAGE, part.SerializeToString(), call)
                answer = service_pb2.AckMessageResponse.FromString(raw)
                answered = [entry.status for entry in answer.entries]
                if len(answered) != len(indexes):
                    answered = [answer.status] * len(indexes)
            except Exception as error:
                answered = [status_of(error, request_id_of(call))] * len(indexes)
            for index, status in zip(indexes, answered, strict=True):
                statuses[index] = status
        call.answer(ack_response(request, [status or stale_status() for status in statuses]).SerializeToString())


class SettleDesk:
    """ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue, for messages of this broker."""

    def __init__(self, broker: Broker, dead_letters: DeadLetters) -> None:
        self._broker = broker
        self._dead_letters = dead_letters

    async def change_invisible(
        self, request: service_pb2.ChangeInvisibleDurationRequest, call: Call
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        """The new handle equals the old one: it names the delivery, whose deadline moved."""
        broker = self._broker
        group, topic = names_of(request.group, request.topic, namespace_of(call))
        receipt = broker.handles.read(context_of(group, topic), request.receipt_handle)
        invisible_ms = request.invisible_duration.ToMilliseconds()
        if not limits.CHANGE_INVISIBLE_MS_MIN <= invisible_ms <= limits.CHANGE_INVISIBLE_MS_MAX:
            raise RequestRefused(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"the invisible duration is {invisible_ms} ms, must be {limits.CHANGE_INVISIBLE_MS_MIN} to "
                f"{limits.CHANGE_INVISIBLE_MS_MAX} ms",
            )
        key = (group, topic, receipt.queue_id)
        settings = broker.groups.find(group)
        if settings is not None and broker.delivery.owner_of(key, receipt.queue_offset):
            # A push consumer says that it failed. Some clients compute their wait wrongly (Node), so ours is the least.
            invisible_ms = max(invisible_ms, settings.retry_delay_ms(receipt.attempt))
        visible_ms = broker.now_ms() + invisible_ms
        outcome = broker.delivery.change_visible(key, receipt.queue_offset, receipt.attempt, receipt.pop_ms, visible_ms)
        broker.touched()
        if outcome is not Outcome.DONE:
            raise _stale_error()
        return service_pb2.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=request.receipt_handle)

    async def forward_to_dead_letters(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        """Idempotent. Without a receipt handle (C++) the message is found by its id."""
        broker = self._broker
        name, topic = names_of(request.group, request.topic, namespace_of(call))
        group = broker.groups.get(name)
        if request.receipt_handle:
            receipt = broker.handles.read(context_of(name, topic), request.receipt_handle)
        else:
            found = self._find(name, topic, request.message_id)
            if found is None:
                return service_pb2.ForwardMessageToDeadLetterQueueResponse(status=ok())
            receipt = found
        await self._dead_letters.ensure_topic(group)
        key = (name, topic, receipt.queue_id)
        lease = broker.delivery.find_lease(key, receipt.queue_offset)
        if lease == (receipt.attempt, receipt.pop_ms):
            message = broker.store.read_offsets(topic, receipt.queue_id, [receipt.queue_offset])[0]
            if message is not None:
                attempts = max(receipt.attempt, request.delivery_attempt)
                self._dead_letters.store(group, [(message, attempts)], Reason.CLIENT)
        outcome = broker.delivery.ack(key, receipt.queue_offset, receipt.attempt, receipt.pop_ms)
        broker.touched()
        if outcome is Outcome.STALE:
            raise _stale_error()
        return service_pb2.ForwardMessageToDeadLetterQueueResponse(status=ok())

    def _find(self, group: str, topic: str, message_id: str) -> Receipt | None:
        """The delivery that a group has of the message with this id; None when it has none any more.
        MESSAGE_NOT_FOUND when no such message is stored."""
        broker = self._broker
        stored = broker.store.query_by_key(topic, message_id, SAME_ID_MESSAGES_MAX, 0, ALL_TIME_MS)
        stored = [message for message in stored if message_id_of(message) == message_id]
        if not message_id or not stored:
            raise RequestRefused(Code.MESSAGE_NOT_FOUND, f"there is no message {message_id!r} in the topic {topic!r}")
        for message in stored:
            lease = broker.delivery.find_lease((group, topic, message.queue_id), message.queue_offset)
            if lease is not None:
                return Receipt(message.queue_id, message.queue_offset, *lease)
        return None


def ack_response(
    request: service_pb2.AckMessageRequest, statuses: list[definition_pb2.Status]
) -> service_pb2.AckMessageResponse:
    """One entry for each of the request, in order; the common code at the top, or MULTIPLE_RESULTS."""
    response = service_pb2.AckMessageResponse()
    for entry, status in zip(request.entries, statuses, strict=True):
        response.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
    if len({status.code for status in statuses}) == 1:
        response.status.CopyFrom(statuses[0])
    else:
        response.status.CopyFrom(status_with(Code.MULTIPLE_RESULTS, "entries differ"))
    return response


def _refused(error: Exception, call: BatchCall) -> service_pb2.AckMessageResponse:
    """A request that is refused as a whole still gets one entry for each of its own, where it can be read."""
    status = status_of(error, request_id_of(call))
    try:
        request = service_pb2.AckMessageRequest.FromString(call.request)
    except DecodeError:
        return service_pb2.AckMessageResponse(status=status)
    if not request.entries or len(request.entries) > limits.ACK_ENTRIES_MAX:
        return service_pb2.AckMessageResponse(status=status)
    return ack_response(request, [status] * len(request.entries))


def _stale_error() -> RequestRefused:
    return RequestRefused(Code.INVALID_RECEIPT_HANDLE, "the message was handed out again, or is not out any more")


def stale_status() -> definition_pb2.Status:
    return status_of(_stale_error())
