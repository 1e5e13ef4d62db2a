"""The Telemetry streams of a node: answers Settings, keeps the live streams by client id, carries commands to clients.

Facts (client-protocol.md 2.1, 2.4, 2.5): response headers leave at once, because the Rust client waits for them; every
Settings is answered, on the stream it came on; Node clients miss an answer that comes while they still start, so they
get the same one again a little later; Settings that nobody can work with end the stream with INVALID_ARGUMENT.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol.errors import RequestRefused
from razzo.protocol.limits import NODE_SETTINGS_AGAIN_MS
from razzo.protocol.names import check_group, check_topic
from razzo.runtime import client_settings
from razzo.runtime.clients import Said
from razzo.runtime.logs import fields
from razzo.runtime.requests import Caller, CallInfo, caller_of, effective_name
from razzo.runtime.status import CallRefused, ok, refusal_of, status_of
from razzo.v1 import config_pb2

log = logging.getLogger(__name__)

CLEANUP_S_MAX = 1.0
"""For the two halves of a stream to end when it is over."""


@dataclass(frozen=True, slots=True)
class TelemetryLimits:
    """Bounds of the desk."""

    #: streams of all clients; the next one is refused (RESOURCE_EXHAUSTED)
    streams_max: int = 50_000
    #: streams of one client; the oldest is ended for the next (ABORTED)
    streams_per_client_max: int = 16
    #: commands waiting for a client that reads slowly: further answers wait, further commands of ours are not sent
    outbox_commands_max: int = 64
    #: bytes of one command from a client; RESOURCE_EXHAUSTED above
    command_bytes_max: int = 1 << 20
    #: a Node client gets the answer to its first Settings again after this
    node_again_s: float = NODE_SETTINGS_AGAIN_MS / 1000


class TelemetryCall(CallInfo, Protocol):
    """The shape of a bidirectional `razzo.door` call."""

    async def send_initial_metadata(self) -> None: ...

    async def write(self, message: bytes) -> None: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


GroupOf: TypeAlias = Callable[[str], "config_pb2.GroupConfig | None"]
"""The configuration of a consumer group by its effective name."""
OnSettings: TypeAlias = "Callable[[Caller, definition_pb2.Settings, Said], Awaitable[None]]"
"""Settings came and are well formed; they are answered when this returns."""
OnStream: TypeAlias = Callable[[str], None]
OnReport: TypeAlias = "Callable[[Caller, service_pb2.TelemetryCommand], None]"
"""A client's answer to a command of ours (thread stack trace, verify message result)."""


class _Stream:
    """One open Telemetry call."""

    def __init__(self, caller: Caller, outbox_max: int) -> None:
        self.caller = caller
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue(outbox_max)
        self.ended: asyncio.Future[CallRefused] = asyncio.get_running_loop().create_future()
        """Why we end it."""
        self.answer = b""
        """To the latest Settings."""
        self.node_again: asyncio.Task[None] | None = None


class TelemetryDesk:
    """Mount `handle` as the Telemetry call. Used on one event loop.

    `handle` raises CallRefused where the stream must end with a gRPC error; the mount turns it into the server's own.
    """

    def __init__(
        self,
        group_of: GroupOf,
        on_settings: OnSettings,
        on_stream_opened: OnStream,
        on_stream_lost: OnStream,
        on_report: OnReport | None = None,
        limits: TelemetryLimits | None = None,
    ) -> None:
        self._group_of = group_of
        self._on_settings = on_settings
        self._on_stream_opened = on_stream_opened
        self._on_stream_lost = on_stream_lost
        self._on_report = on_report
        self._limits = limits or TelemetryLimits()
        self._streams: dict[str, list[_Stream]] = {}  # by client id, oldest first
        self._count = 0

    def __len__(self) -> int:
        """Open streams."""
        return self._count

    def is_connected(self, client_id: str) -> bool:
        return client_id in self._streams

    def send(self, client_id: str, command: service_pb2.TelemetryCommand) -> bool:
        """Hands a command to the client's newest stream. False when it has none, or reads too slowly to take more."""
        streams = self._streams.get(client_id)
        if not streams:
            return False
        try:
            streams[-1].outbox.put_nowait(command.SerializeToString())
        except asyncio.QueueFull:
            log.warning("command not sent: the client reads too slowly", extra=fields(client=client_id))
            return False
        return True

    async def close(self) -> None:
        """Ends all streams: clients then open new ones, here after a restart or at another node."""
        for streams in self._streams.values():
            for stream in streams:
                _end(stream, CallRefused(grpc.StatusCode.UNAVAILABLE, "the server stops"))

    async def handle(self, call: TelemetryCall) -> None:
        """Serves one Telemetry stream until the client ends it."""
        await call.send_initial_metadata()
        try:
            caller = caller_of(call)
        except RequestRefused as refused:
            await call.write(service_pb2.TelemetryCommand(status=status_of(refused)).SerializeToString())
            raise refusal_of(refused) from refused
        await self._serve(call, self._open(caller))

    async def _serve(self, call: TelemetryCall, stream: _Stream) -> None:
        """Reads and writes side by side; whichever fails ends both. The reader's end lets the writer finish."""
        reader = asyncio.create_task(self._read(call, stream))
        writer = asyncio.create_task(_write(call, stream))
        tasks = (reader, writer)
        try:
            await asyncio.wait((*tasks, stream.ended), return_when=asyncio.FIRST_COMPLETED)
            if stream.ended.done():
                raise stream.ended.result()
            if reader.done() and reader.exception() is None:
                await stream.outbox.put(None)
                await writer
            for task in (reader, writer):
                if task.done():
                    task.result()
        finally:
            self._lose(stream)  # before anything that waits: a lost client is noticed at once
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLEANUP_S_MAX)

    async def _read(self, call: TelemetryCall, stream: _Stream) -> None:
        async for message in call:
            if len(message) > self._limits.command_bytes_max:
                raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "the command is too large")
            try:
                command = service_pb2.TelemetryCommand.FromString(message)
            except DecodeError as error:
                raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "not a TelemetryCommand") from error
            kind = command.WhichOneof("command")
            if kind == "settings":
                await self._settings(stream, command.settings)
            elif kind is not None and self._on_report is not None:
                self._on_report(stream.caller, command)

    async def _settings(self, stream: _Stream, settings: definition_pb2.Settings) -> None:
        try:
            client_settings.check(settings)
            said = what_it_says(settings, stream.caller)
        except RequestRefused as refused:
            log.info("settings refused: %s", refused.message, extra=fields(client=stream.caller.client_id))
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, refused.message) from refused
        await self._on_settings(stream.caller, settings, said)
        answer = self._answer(settings, said)
        await stream.outbox.put(answer)
        stream.answer = answer
        node = settings.user_agent.language == definition_pb2.Language.NODE_JS
        if node and stream.node_again is None:
            stream.node_again = asyncio.create_task(_again(stream, self._limits.node_again_s))

    def _answer(self, settings: definition_pb2.Settings, said: Said) -> bytes:
        group = self._group_of(said.group) if said.group else None
        command = service_pb2.TelemetryCommand(status=ok(), settings=client_settings.answer(settings, group))
        return command.SerializeToString()

    def _open(self, caller: Caller) -> _Stream:
        if self._count >= self._limits.streams_max:
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many Telemetry streams")
        streams = self._streams.setdefault(caller.client_id, [])
        if len(streams) >= self._limits.streams_per_client_max:
            _end(streams[0], CallRefused(grpc.StatusCode.ABORTED, "the client opened newer streams"))
        stream = _Stream(caller, self._limits.outbox_commands_max)
        streams.append(stream)
        self._count += 1
        self._on_stream_opened(caller.client_id)
        return stream

    def _lose(self, stream: _Stream) -> None:
        if stream.node_again is not None:
            stream.node_again.cancel()
        client_id = stream.caller.client_id
        streams = self._streams[client_id]
        streams.remove(stream)
        if not streams:
            del self._streams[client_id]
        self._count -= 1
        self._on_stream_lost(client_id)


def what_it_says(settings: definition_pb2.Settings, caller: Caller) -> Said:
    """Settings as the client table keeps them, with effective names. RequestRefused for an illegal topic or group."""
    agent = settings.user_agent
    namespace = caller.namespace
    if settings.WhichOneof("pub_sub") == "publishing":
        topics = [effective_name(topic, namespace) for topic in settings.publishing.topics]
        for topic in topics:
            check_topic(topic)
        return Said(agent.language, settings.client_type, agent.version, "", {}, topics)
    group = ""
    if settings.subscription.group.name:
        group = effective_name(settings.subscription.group, namespace)
        check_group(group)
    subscriptions = {}
    for entry in settings.subscription.subscriptions:
        topic = effective_name(entry.topic, namespace)
        check_topic(topic)
        subscriptions[topic] = (int(entry.expression.type), entry.expression.expression)
    return Said(agent.language, settings.client_type, agent.version, group, subscriptions, ())


def _end(stream: _Stream, reason: CallRefused) -> None:
    if not stream.ended.done():
        stream.ended.set_result(reason)


async def _write(call: TelemetryCall, stream: _Stream) -> None:
    while True:
        message = await stream.outbox.get()
        if message is None:
            return
        await call.write(message)


async def _again(stream: _Stream, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    with suppress(asyncio.QueueFull):  # a client with a full outbox has had its answer
        stream.outbox.put_nowait(stream.answer)
