"""A small client of RocketMQ's public API, as official clients speak it: route, Telemetry, send, receive, acknowledge.

Imports grpc, so it is imported late.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import itertools
import os
import platform
import queue
import secrets
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc

from apache.rocketmq.v2 import definition_pb2 as pb
from apache.rocketmq.v2 import service_pb2 as svc
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from razzo.cli import wire
from razzo.cli.exits import CommandFailed, Exit
from razzo.protocol.codes import Code, is_callers_fault

UNARY_S_MAX = 10.0
"""Deadline of every call but a receive. Official clients wait 3 s; a person prefers an answer."""

RECEIVE_GRACE_S = 1.0
"""How much longer than its long poll the call of a receive lives: the server answers half a second before the end."""

IN_FLIGHT_MAX = 64
"""Sends that wait for their answers at a time."""

ID_EPOCH_S = 1_609_459_200
"""2021-01-01T00:00:00Z, from which message ids count seconds."""

CLIENT_ID_BYTES_MAX = 255

_numbers = itertools.count(secrets.randbits(24))
_NODE = (secrets.randbits(48) | 1 << 40).to_bytes(6, "big")


def message_id() -> str:
    """A message id, version 1: 17 bytes as 34 upper-case hexadecimal digits: 01, six of the host (here of the run, with
    the bit that no network card has), the process, seconds since 2021, a counter."""
    fields = (
        b"\x01",
        _NODE,
        (os.getpid() & 0xFFFF).to_bytes(2, "big"),
        (int(time.time()) - ID_EPOCH_S).to_bytes(4, "big"),
        (next(_numbers) & 0xFFFFFFFF).to_bytes(4, "big"),
    )
    return b"".join(fields).hex().upper()


def check(status: pb.Status, what: str) -> None:
    """CommandFailed unless the status is OK."""
    number = int(status.code)
    if number == Code.OK:
        return
    name = pb.Code.Name(status.code) if number in pb.Code.values() else str(number)
    refused = number in set(Code) and is_callers_fault(Code(number))
    exit_code = Exit.REFUSED if refused else Exit.FAULT
    raise CommandFailed(exit_code, f"{what}: {status.message or 'no reason given'} ({name})")


class Sent(NamedTuple):
    """What became of one message: `failed` is None when it was stored as asked."""

    message_id: str
    offset: int
    recall_handle: str
    failed: CommandFailed | None


class Session:
    """One client: its id, channels to the endpoint and to brokers of routes, a Telemetry stream to each broker used."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        client_id = f"{socket.gethostname()}@{os.getpid()}@0@{secrets.token_hex(6)}"
        self._metadata = (
            ("x-mq-client-id", client_id[-CLIENT_ID_BYTES_MAX:]),
            ("x-mq-language", "PYTHON"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", "razzo-cli"),
        )
        self._channels: dict[str, grpc.Channel] = {}
        self._streams: dict[str, tuple[queue.SimpleQueue[svc.TelemetryCommand | None], Any]] = {}
        self._group: pb.Resource | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Says goodbye to the brokers, which give back at once what this client holds, and closes everything."""
        for address, (commands, stream) in self._streams.items():
            request = svc.NotifyClientTerminationRequest(group=self._group)
            # The work is done: a broker that cannot be told finds out by itself.
            with contextlib.suppress(CommandFailed):
                self._call(address, "NotifyClientTermination", request)
            commands.put(None)
            stream.cancel()
        self._streams.clear()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # --- routes

    def route(self, topic: str) -> list[pb.MessageQueue]:
        """The queues of a topic. CommandFailed when there is no such topic."""
        request = svc.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=self._access_point())
        answer = self._call(self.endpoint, "QueryRoute", request)
        check(answer.status, f"topic {topic}")
        return list(answer.message_queues)

    def _access_point(self) -> pb.Endpoints:
        host, _, port = self.endpoint.rpartition(":")
        host = host.strip("[]")
        scheme = pb.DOMAIN_NAME
        for family, found in ((socket.AF_INET, pb.IPv4), (socket.AF_INET6, pb.IPv6)):
            try:
                socket.inet_pton(family, host)
            except OSError:
                continue
            scheme = found
        return pb.Endpoints(scheme=scheme, addresses=[pb.Address(host=host, port=int(port))])

    # --- producing

    def open_producer(self, topic: str, queues: Sequence[pb.MessageQueue]) -> None:
        """Tells the topic's brokers what this client is."""
        settings = pb.Settings(
            client_type=pb.PRODUCER,
            publishing=pb.Publishing(topics=[pb.Resource(name=topic)]),
            user_agent=_user_agent(),
        )
        self._introduce(queues, settings)

    def send(self, queues: Sequence[pb.MessageQueue], messages: Iterator[pb.Message]) -> Iterator[Sent]:
        """Sends the messages, several at a time but those of a message group one after the other; results in order.

        After a failure no further message is sent; those on their way still have their results.
        """
        waiting: collections.deque[tuple[pb.Message, str, Any]] = collections.deque()
        spread = itertools.cycle(queues)
        for message in messages:
            group = message.system_properties.message_group
            target = queues[_stable_hash(group) % len(queues)] if group else next(spread)
            message.system_properties.queue_id = target.id
            address = _address(target)
            request = svc.SendMessageRequest(messages=[message])
            future = self._stub(address).SendMessage.future(request, metadata=self._metadata, timeout=UNARY_S_MAX)
            waiting.append((message, address, future))
            if group or len(waiting) >= IN_FLIGHT_MAX:
                result = self._sent(*waiting.popleft())
                yield result
                if result.failed is not None:
                    break
        for entry in waiting:
            yield self._sent(*entry)

    def _sent(self, message: pb.Message, address: str, future: Any) -> Sent:
        own_id = message.system_properties.message_id
        try:
            answer = future.result()
            check(answer.status, "not sent")
        except grpc.RpcError as failed:
            return Sent(own_id, -1, "", wire.failure(address, failed, UNARY_S_MAX))
        except CommandFailed as refused:
            return Sent(own_id, -1, "", refused)
        entry = answer.entries[0]
        return Sent(entry.message_id, entry.offset, entry.recall_handle, None)

    # --- consuming

    def open_consumer(
        self, topic: str, group: str, expression: pb.FilterExpression, queues: Sequence[pb.MessageQueue]
    ) -> None:
        """Tells the topic's brokers what this client is and what it reads."""
        self._group = pb.Resource(name=group)
        entry = pb.SubscriptionEntry(topic=pb.Resource(name=topic), expression=expression)
        settings = pb.Settings(
            client_type=pb.SIMPLE_CONSUMER,
            subscription=pb.Subscription(group=self._group, subscriptions=[entry]),
            user_agent=_user_agent(),
        )
        self._introduce(queues, settings)

    def receive(
        self, target: pb.MessageQueue, expression: pb.FilterExpression, count: int, wait_s: float, invisible_ms: int
    ) -> list[pb.Message]:
        """Up to `count` messages of the broker of `target`, leased for `invisible_ms`; waits `wait_s` for the first."""
        request = svc.ReceiveMessageRequest(
            group=self._group,
            message_queue=target,
            filter_expression=expression,
            batch_size=count,
            attempt_id=str(uuid.uuid4()),
        )
        request.invisible_duration.FromMilliseconds(invisible_ms)
        request.long_polling_timeout.FromMilliseconds(round(wait_s * 1_000))
        address, deadline_s = _address(target), wait_s + RECEIVE_GRACE_S
        messages = []
        try:
            stub = self._stub(address)
            for element in stub.ReceiveMessage(request, metadata=self._metadata, timeout=deadline_s):
                kind = element.WhichOneof("content")
                if kind == "message":
                    messages.append(element.message)
                elif kind == "status" and element.status.code != Code.MESSAGE_NOT_FOUND:
                    check(element.status, "not received")
        except grpc.RpcError as failed:
            if failed.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or not messages:
                raise wire.failure(address, failed, deadline_s) from None
        return messages

    def acknowledge(self, target: pb.MessageQueue, messages: Sequence[pb.Message]) -> None:
        """Acknowledges messages of one receive. CommandFailed when any of them could not be."""
        properties = [message.system_properties for message in messages]
        entries = [
            svc.AckMessageEntry(message_id=own.message_id, receipt_handle=own.receipt_handle) for own in properties
        ]
        request = svc.AckMessageRequest(group=self._group, topic=target.topic, entries=entries)
        answer = self._call(_address(target), "AckMessage", request)
        for entry in answer.entries:
            check(entry.status, f"message {entry.message_id} not acknowledged")
        check(answer.status, "not acknowledged")

    # --- inside

    def _introduce(self, queues: Sequence[pb.MessageQueue], settings: pb.Settings) -> None:
        """Opens a Telemetry stream to each broker and waits for its Settings."""
        settings.access_point.CopyFrom(self._access_point())
        settings.request_timeout.FromSeconds(int(UNARY_S_MAX))
        for address in dict.fromkeys(map(_address, queues)):
            commands: queue.SimpleQueue[svc.TelemetryCommand | None] = queue.SimpleQueue()
            commands.put(svc.TelemetryCommand(settings=settings))
            stream = self._stub(address).Telemetry(iter(commands.get, None), metadata=self._metadata)
            self._streams[address] = (commands, stream)
            try:
                answer = next(stream)
            except grpc.RpcError as failed:
                raise wire.failure(address, failed, UNARY_S_MAX) from None
            except StopIteration:
                raise CommandFailed(Exit.FAULT, f"{address} ended the Telemetry stream without Settings") from None
            check(answer.status, f"{address} refused the client's settings")

    def _stub(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = grpc.insecure_channel(address, options=wire.OPTIONS)
        return MessagingServiceStub(self._channels[address])

    def _call(self, address: str, method: str, request: Any) -> Any:
        stub_method = getattr(self._stub(address), method)
        try:
            return stub_method(request, metadata=self._metadata, timeout=UNARY_S_MAX)
        except grpc.RpcError as failed:
            raise wire.failure(address, failed, UNARY_S_MAX) from None


def writable(queues: Sequence[pb.MessageQueue], topic: str) -> list[pb.MessageQueue]:
    """The queues that take messages. CommandFailed when there is none."""
    return _with_permission(queues, (pb.WRITE, pb.READ_WRITE), f"topic {topic} takes no messages: no queue is writable")


def readable(queues: Sequence[pb.MessageQueue], topic: str) -> list[pb.MessageQueue]:
    """One readable queue of each broker: a broker hands out the messages of all its queues. CommandFailed for none."""
    found = _with_permission(queues, (pb.READ, pb.READ_WRITE), f"topic {topic} gives no messages: no queue is readable")
    return list({queue.broker.name: queue for queue in reversed(found)}.values())


def _with_permission(
    queues: Sequence[pb.MessageQueue], permissions: Sequence[pb.Permission], otherwise: str
) -> list[pb.MessageQueue]:
    found = [queue for queue in queues if queue.permission in permissions]
    if not found:
        raise CommandFailed(Exit.REFUSED, otherwise)
    return found


def _address(queue: pb.MessageQueue) -> str:
    address = queue.broker.endpoints.addresses[0]
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


def _stable_hash(group: str) -> int:
    """The same number for a message group in every process, so that its messages meet on one broker."""
    return int.from_bytes(hashlib.sha256(group.encode()).digest(), "big")


def _user_agent() -> pb.UA:
    return pb.UA(language=pb.PYTHON, version="razzo-cli", platform=platform.platform(), hostname=socket.gethostname())
