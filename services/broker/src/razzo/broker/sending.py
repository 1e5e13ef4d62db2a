"""SendMessage: a batch of calls becomes one append, one wait for the disk, and as many answers.

`handle` takes the calls that one turn of the loop brought. A compiled path may take the easy ones out of the list
before (`first`): it answers them itself and leaves the rest in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker import incoming
from razzo.broker.broker import Broker, end_of
from razzo.broker.topics import Topic, TopicType, check_served
from razzo.broker.unanswered import NOT_FLUSHED, Unanswered, refuse
from razzo.door.methods import BatchCall, answer_many
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RazzoError, RequestRefused
from razzo.runtime.requests import client_id_of, effective_name, namespace_of, peer_of
from razzo.runtime.status import status as status_with
from razzo.storage import Appended, NewMessage

First: TypeAlias = Callable[[list[BatchCall]], list[BatchCall]]
"""Takes calls, answers those it can, gives back the others."""


class _Prepared(NamedTuple):
    """A call that was checked: its records and the ids to answer with."""

    call: BatchCall
    records: list[NewMessage]
    message_ids: list[str]


class SendDesk:
    """Mount `handle` as a unary batch handler."""

    def __init__(
        self, broker: Broker, unanswered: Unanswered, *, wait_for_flush: bool, first: First | None = None
    ) -> None:
        self._broker = broker
        self._unanswered = unanswered
        self._wait_for_flush = wait_for_flush
        self._first = first

    def handle(self, calls: list[BatchCall]) -> None:
        if self._first is not None:
            calls = self._first(calls)
        prepared = []
        for call in calls:
            try:
                each = self._prepare(call)
            except Exception as error:
                refuse(call, error)
                continue
            if each is not None:
                prepared.append(each)
        if prepared:
            self._store(prepared)

    # --- decode and check

    def _prepare(self, call: BatchCall) -> _Prepared | None:
        """None when the call goes on by itself, because its topic has to be made first."""
        client_id_of(call)
        try:
            request = service_pb2.SendMessageRequest.FromString(call.request)
        except DecodeError as error:
            raise RequestRefused(Code.BAD_REQUEST, "not a SendMessageRequest") from error
        messages = request.messages
        if not messages:
            raise RequestRefused(Code.MESSAGE_CORRUPTED, "the request has no message")
        if len(messages) > limits.SEND_BATCH_MESSAGES_MAX:
            raise RequestRefused(
                Code.MESSAGE_CORRUPTED,
                f"a request has at most {limits.SEND_BATCH_MESSAGES_MAX} messages, not {len(messages)}",
            )
        namespace = namespace_of(call)
        names = {effective_name(message.topic, namespace) for message in messages}
        if len(names) > 1:
            raise RequestRefused(Code.MESSAGE_CORRUPTED, "the messages of a request go to one topic")
        name = names.pop()
        if self._broker.may_create_topic(name):
            self._unanswered.spawn(self._make_topic_and_send(name, call))
            return None
        return self._check(call, list(messages), self._broker.topics.get(name))

    def _check(self, call: BatchCall, messages: list[definition_pb2.Message], topic: Topic) -> _Prepared:
        if not topic.writable:
            raise RequestRefused(Code.FORBIDDEN, f"the topic {topic.name!r} has no write permission")
        check_served(topic)
        if not self._unanswered.has_room(len(messages)):
            raise BrokerFault(Code.TOO_MANY_REQUESTS, f"{self._unanswered.messages} messages wait for the disk")
        broker = self._broker
        now_ms = broker.now_ms()
        kinds = [incoming.check(message, topic, now_ms) for message in messages]
        if len(messages) > 1 and TopicType.DELAY in kinds:
            raise RequestRefused(Code.MESSAGE_CORRUPTED, "a delayed message is alone in its request")
        peer = peer_of(call)
        shared_queue = -1
        records = []
        for message, kind in zip(messages, kinds, strict=True):
            if kind is TopicType.FIFO:
                queue_id = broker.topics.queue_of_group(topic, message.system_properties.message_group)
            else:
                if shared_queue < 0:
                    shared_queue = broker.topics.next_queue(topic)
                queue_id = shared_queue
            records.append(incoming.to_record(message, topic, queue_id, peer, now_ms))
        return _Prepared(call, records, [message.system_properties.message_id for message in messages])

    async def _make_topic_and_send(self, name: str, call: BatchCall) -> None:
        try:
            await self._broker.ensure_topic(name)
        except Exception as error:
            refuse(call, error)
            return
        self.handle([call])

    # --- store and answer

    def _store(self, prepared: list[_Prepared]) -> None:
        records = [record for each in prepared for record in each.records]
        try:
            appended = self._broker.append(records)
        except Exception as error:
            if len(prepared) == 1 or (isinstance(error, RazzoError) and error.code == Code.TOO_MANY_REQUESTS):
                for each in prepared:
                    refuse(each.call, error)
            else:  # nothing was written: one call's fault must not be the others'
                for each in prepared:
                    self._store([each])
            return
        if self._wait_for_flush:
            calls = [each.call for each in prepared]
            answer = partial(_answer_flushed, prepared, appended)
            self._unanswered.answer_when_flushed(calls, len(appended), end_of(appended[-1]), answer)
        else:
            _answer(prepared, appended, Code.OK, "OK")


def _answer_flushed(prepared: list[_Prepared], appended: list[Appended], flushed: bool) -> None:
    if flushed:
        _answer(prepared, appended, Code.OK, "OK")
    else:
        _answer(prepared, appended, Code.MASTER_PERSISTENCE_TIMEOUT, NOT_FLUSHED)


def _answer(prepared: list[_Prepared], appended: list[Appended], code: Code, text: str) -> None:
    """The same code at the top and in every entry: all messages of a batch share one fate."""
    places = iter(appended)
    status = status_with(code, text)
    responses = []
    for _, records, message_ids in prepared:
        response = service_pb2.SendMessageResponse(status=status)
        for _, message_id in zip(records, message_ids, strict=True):
            response.entries.add(status=status, message_id=message_id, offset=next(places).queue_offset)
        responses.append(response.SerializeToString())
    answer_many([each.call for each in prepared], responses)
