"""A simple consumer of the public API without a client library, for Apache's proxy and for Razzo alike."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Iterator
from typing import Any, Self

import grpc

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub

CALL_S = 10.0
POLL_S = 1
ROUNDS_MAX = 100


class PopClient:
    """One client id with a telemetry stream, which Apache's proxy wants before it serves a receive."""

    def __init__(self, endpoint: str, group: str, topic: str, receive_s: float = CALL_S) -> None:
        """`receive_s` is the deadline of a receive: Razzo polls until shortly before it, Apache refuses a short one."""
        self._receive_s = receive_s
        self.group, self.topic = d.Resource(name=group), d.Resource(name=topic)
        self._metadata = (("x-mq-client-id", f"pop-{uuid.uuid4().hex}"), ("x-mq-language", "PYTHON"))
        self._channel = grpc.insecure_channel(endpoint)
        self._stub: Any = MessagingServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._commands: queue.Queue[s.TelemetryCommand | None] = queue.Queue()
        host, _, port = endpoint.rpartition(":")
        self._endpoints = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host=host, port=int(port))])

    def __enter__(self) -> Self:
        command = s.TelemetryCommand()
        command.settings.client_type = d.SIMPLE_CONSUMER
        command.settings.access_point.CopyFrom(self._endpoints)
        command.settings.subscription.group.CopyFrom(self.group)
        command.settings.subscription.long_polling_timeout.seconds = POLL_S
        entry = command.settings.subscription.subscriptions.add(topic=self.topic)
        entry.expression.type, entry.expression.expression = d.TAG, "*"
        self._commands.put(command)
        telemetry = self._stub.Telemetry(iter(self._commands.get, None), metadata=self._metadata)
        assert next(telemetry).HasField("settings")
        answer = self._call("QueryRoute", s.QueryRouteRequest(topic=self.topic, endpoints=self._endpoints))
        assert answer.status.code == d.OK, answer.status
        self._queue = answer.message_queues[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._commands.put(None)
        self._channel.close()

    def _call(self, method: str, request: Any, timeout_s: float = CALL_S) -> Any:
        return getattr(self._stub, method)(request, metadata=self._metadata, timeout=timeout_s)

    def send(self, body: bytes, tag: str, key: str) -> None:
        """One NORMAL message to the topic, to any queue."""
        message = d.Message(topic=self.topic, body=body)
        system = message.system_properties
        system.tag, system.message_id = tag, uuid.uuid4().hex.upper()
        system.keys.append(key)
        system.message_type, system.body_encoding = d.NORMAL, d.IDENTITY
        system.born_host = "127.0.0.1"
        system.born_timestamp.GetCurrentTime()
        answer = self._call("SendMessage", s.SendMessageRequest(messages=[message]))
        assert answer.status.code == d.OK, answer.status

    def receive(self, count: int, invisible_s: int = 60) -> list[d.Message]:
        """One receive over all queues; up to `count` messages."""
        request = s.ReceiveMessageRequest(group=self.group, message_queue=self._queue, batch_size=count)
        request.message_queue.id = -1
        request.filter_expression.type, request.filter_expression.expression = d.TAG, "*"
        request.invisible_duration.seconds, request.long_polling_timeout.seconds = invisible_s, POLL_S
        answers: Iterator[s.ReceiveMessageResponse] = self._call("ReceiveMessage", request, self._receive_s)
        messages = []
        for answer in answers:
            if answer.HasField("message"):
                messages.append(answer.message)
            assert answer.status.code in (d.CODE_UNSPECIFIED, d.OK, d.MESSAGE_NOT_FOUND), answer.status
        return messages

    def receive_all(self, invisible_s: int = 60) -> list[d.Message]:
        """Until a receive brings nothing."""
        messages: list[d.Message] = []
        for _ in range(ROUNDS_MAX):
            more = self.receive(32, invisible_s)
            if not more:
                return messages
            messages += more
        raise AssertionError(f"no end after {len(messages)} messages")

    def ack(self, messages: list[d.Message]) -> None:
        request = s.AckMessageRequest(group=self.group, topic=self.topic)
        for message in messages:
            system = message.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        answer = self._call("AckMessage", request)
        assert answer.status.code == d.OK, answer

    def change_invisible(self, message: d.Message, seconds: int) -> None:
        system = message.system_properties
        request = s.ChangeInvisibleDurationRequest(
            group=self.group, topic=self.topic, receipt_handle=system.receipt_handle, message_id=system.message_id
        )
        request.invisible_duration.seconds = seconds
        answer = self._call("ChangeInvisibleDuration", request)
        assert answer.status.code == d.OK, answer.status


def place(message: d.Message) -> tuple[int, int]:
    return message.system_properties.queue_id, message.system_properties.queue_offset
