"""A broker of tests: it beats as a real one on the peer wire, records every call it gets, and answers by script."""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import struct
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
import grpc.aio

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol import methods
from razzo.protocol.codes import Code
from razzo.v1 import config_pb2, registry_pb2, registry_pb2_grpc

OK = definition_pb2.Status(code=definition_pb2.Code.OK, message="OK")
ACK_S_MAX = 10.0
_incarnations = itertools.count(1)


class Received(NamedTuple):
    """One call as it reached the broker."""

    path: str
    request: bytes
    metadata: dict[str, str]
    time_remaining: float | None


def topic(
    name: str,
    queues: int = 2,
    kind: config_pb2.TopicType = config_pb2.TopicType.NORMAL,
    permission: int = 6,
) -> config_pb2.TopicConfig:
    return config_pb2.TopicConfig(name=name, read_queues=queues, write_queues=queues, permission=permission, type=kind)


def status(code: int, message: str = "") -> definition_pb2.Status:
    return definition_pb2.Status(code=code, message=message)


def handle(broker_name: str, kind: str = "R", payload: bytes = b"payload") -> str:
    """A handle in the layout all brokers use, with a mac that nobody checks here."""
    name = broker_name.encode()
    raw = struct.pack("BBB", 1, ord(kind), len(name)) + name + payload + bytes(8)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class ScriptedBroker:
    """`script` maps a path to what it answers: bytes, a message, or a function (request, context) that gives one,
    raises, or is an async generator of messages. Heartbeat, assignment and goodbye are answered OK unless scripted."""

    def __init__(
        self,
        name: str,
        *topics: config_pb2.TopicConfig,
        groups: tuple[config_pb2.GroupConfig, ...] = (),
        client_host: str = "127.0.0.1",
        client_port: int = 10911,
        tls_port: int | None = 10901,
        incarnation: str = "",
    ) -> None:
        self.name = name
        self.topics = list(topics)
        self.groups = list(groups)
        self.client = client_host, client_port, tls_port
        self.incarnation = incarnation or f"{name}-run-{next(_incarnations)}"
        self.data_version = 1
        self.received: list[Received] = []
        self.cancelled: list[str] = []
        self.registrations: list[Registration] = []
        self.peer_port = 0
        self.script: dict[str, Any] = {
            methods.QUERY_ASSIGNMENT: service_pb2.QueryAssignmentResponse(status=OK),
            methods.HEARTBEAT: service_pb2.HeartbeatResponse(status=OK),
            methods.NOTIFY_CLIENT_TERMINATION: service_pb2.NotifyClientTerminationResponse(status=OK),
        }
        self._server: grpc.aio.Server | None = None

    async def start(self, *peer_addresses: str) -> Self:
        """Listens on a free peer port and registers with these nameservers."""
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        self._server.add_generic_rpc_handlers((_Answers(self),))
        self.peer_port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        for address in peer_addresses:
            await self.register(address)
        return self

    async def register(self, peer_address: str) -> Registration:
        registration = Registration(self, peer_address)
        self.registrations.append(registration)
        await registration.beat(full=True)
        return registration

    async def put_topic(self, config: config_pb2.TopicConfig) -> None:
        """Has a topic from now on; returns when every nameserver knows it."""
        self.topics.append(config)
        self.data_version += 1
        for registration in self.registrations:
            await registration.beat(full=True)

    async def lose_peer_port(self) -> None:
        """Calls to it fail from now on; its registrations stay."""
        assert self._server is not None
        await self._server.stop(None)

    async def stop(self) -> None:
        for registration in self.registrations:
            await registration.cut()
        if self._server is not None:
            await self._server.stop(None)

    def info(self) -> registry_pb2.BrokerInfo:
        host, port, tls_port = self.client
        info = registry_pb2.BrokerInfo(
            cluster="tests",
            broker_name=self.name,
            broker_id=0,
            incarnation=self.incarnation,
            client_plain=registry_pb2.Address(host=host, port=port),
            peer=registry_pb2.Address(host="127.0.0.1", port=self.peer_port),
            topics=self.topics,
            groups=self.groups,
            data_version=self.data_version,
        )
        if tls_port is not None:
            info.client_tls.CopyFrom(registry_pb2.Address(host=host, port=tls_port))
        return info

    def of(self, path: str) -> list[Received]:
        """The calls of one method, in the order they came."""
        return [call for call in self.received if call.path == path]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class Registration:
    """One Register stream to one nameserver."""

    def __init__(self, broker: ScriptedBroker, peer_address: str) -> None:
        self._broker = broker
        self._channel = grpc.aio.insecure_channel(peer_address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._stream = registry_pb2_grpc.RegistryStub(self._channel).Register()
        self._sequence = 0
        self.acked = 0
        self.views: list[list[str]] = []
        self.ended: grpc.StatusCode | None = None
        self.details = ""
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def beat(self, *, full: bool = False, leaving: bool = False) -> None:
        """Sends a beat and returns when it was acknowledged, or the stream ended."""
        self._sequence += 1
        beat = registry_pb2.BrokerBeat(sequence=self._sequence, leaving=leaving)
        if full:
            beat.broker.CopyFrom(self._broker.info())
        await self._stream.write(beat)
        wanted = self._sequence
        await self.wait(lambda: self.acked >= wanted or self.ended is not None)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """For something that the nameserver says; AssertionError when it does not in time."""
        try:
            async with asyncio.timeout(ACK_S_MAX), self._news:
                await self._news.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"{self._broker.name} was told {self.acked=} {self.views=} {self.ended=}") from None

    async def cut(self) -> None:
        """The connection is gone, as when the process died."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def _read(self) -> None:
        try:
            async for message in self._stream:
                async with self._news:
                    self.acked = message.acked_sequence
                    if message.HasField("view"):
                        self.views.append([broker.broker_name for broker in message.view.brokers])
                    self._news.notify_all()
            ended, details = grpc.StatusCode.OK, ""
        except grpc.aio.AioRpcError as error:
            ended, details = error.code(), error.details() or ""
        async with self._news:
            self.ended, self.details = ended, details
            self._news.notify_all()


class _Answers(grpc.GenericRpcHandler):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        path = handler_call_details.method
        broker = self._broker

        def record(request: bytes, context: Any) -> Any:
            metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
            broker.received.append(Received(path, request, metadata, context.time_remaining()))
            return broker.script.get(path)

        async def unary(request: bytes, context: Any) -> bytes:
            answer = record(request, context)
            if callable(answer):
                answer = answer(request, context)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is None:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{path} is not scripted")
            return _encoded(answer)

        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            answers = record(request, context)
            try:
                async for message in answers(request, context):
                    yield _encoded(message)
            except asyncio.CancelledError:
                broker.cancelled.append(path)
                raise

        if path in methods.SERVER_STREAMING:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)


def _encoded(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def code_of(answer: Any) -> Code:
    return Code(answer.status.code)
