"""The nameserver's peer port: razzo.v1.Registry. Brokers keep one Register stream open; its end is the broker's end."""

from __future__ import annotations

import asyncio
import logging

import grpc
from google.protobuf.message import DecodeError

from razzo.door.methods import Call, MethodTable
from razzo.nameserver.cluster import Cluster
from razzo.protocol import methods
from razzo.protocol.errors import RequestRefused
from razzo.runtime.logs import fields
from razzo.runtime.status import CallRefused, refusal_of
from razzo.v1 import registry_pb2

log = logging.getLogger(__name__)

SESSIONS_MAX = 4_096
"""Register streams open at once; the next one is refused. More than brokers, because a stream may be half dead."""


CLEANUP_S_MAX = 1.0
"""For the two halves of a stream to end when it is over."""


class _Session:
    """One Register stream: what it has to be told, as a state and not as a queue."""

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.acked_sequence = 0
        self.end: CallRefused | None = None
        self.told_version = -1
        self.told_sequence = 0
        self.wake = asyncio.Event()


class RegistryApi:
    """Serves brokers. Used on one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sessions: dict[int, _Session] = {}
        cluster.on_change(self._wake_all)

    def mount(self, table: MethodTable) -> None:
        table.bidi(methods.REGISTER, self.register)
        table.unary(methods.DESCRIBE_CLUSTER, self.describe_cluster)

    def __len__(self) -> int:
        """Open Register streams."""
        return len(self._sessions)

    async def describe_cluster(self, request: bytes, call: Call) -> bytes:
        return self._cluster.book.view.SerializeToString()

    async def register(self, call: Call) -> None:
        """One broker's stream, from its first beat to its end."""
        if len(self._sessions) >= SESSIONS_MAX:
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{SESSIONS_MAX} Register streams already")
        session = _Session(self._cluster.new_connection())
        self._sessions[session.connection] = session
        log.info("broker connected", extra=fields(connection=session.connection, peer=call.peer))
        reader = asyncio.create_task(self._read(call, session))
        writer = asyncio.create_task(self._write(call, session))
        try:
            done, _ = await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # First of all, before anything that waits: a lost broker must be noticed at once.
            del self._sessions[session.connection]
            log.info("broker disconnected", extra=fields(connection=session.connection))
            self._cluster.disconnected(session.connection)
            reader.cancel()
            writer.cancel()
            _, stuck = await asyncio.wait((reader, writer), timeout=CLEANUP_S_MAX)
            if stuck:
                log.warning("a stream did not end", extra=fields(connection=session.connection, tasks=len(stuck)))

    async def close(self) -> None:
        """Ends all streams: brokers then know at once that this nameserver stops."""
        for connection in list(self._sessions):
            self._end(connection, CallRefused(grpc.StatusCode.UNAVAILABLE, "the nameserver stops"))

    def end_silent(self) -> None:
        """Ends the streams of brokers that sent no beat for too long."""
        for connection in self._cluster.expire():
            self._end(connection, CallRefused(grpc.StatusCode.DEADLINE_EXCEEDED, "no beat came for too long"))

    async def _read(self, call: Call, session: _Session) -> None:
        async for message in call:
            try:
                beat = registry_pb2.BrokerBeat.FromString(message)
                applied = self._cluster.beat(session.connection, beat)
            except DecodeError as error:
                raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "not a BrokerBeat") from error
            except RequestRefused as refused:
                log.warning(
                    "beat refused: %s", refused.message, extra=fields(connection=session.connection, peer=call.peer)
                )
                raise refusal_of(refused) from refused
            session.acked_sequence = applied.acked_sequence
            session.wake.set()
            if applied.superseded is not None:
                name = beat.broker.broker_name
                log.warning("broker registered anew", extra=fields(broker=name, instead_of=applied.superseded))
                reason = f"{name} registered again from {call.peer}"
                self._end(applied.superseded, CallRefused(grpc.StatusCode.ALREADY_EXISTS, reason))

    async def _write(self, call: Call, session: _Session) -> None:
        while True:
            await session.wake.wait()
            session.wake.clear()
            if session.end is not None:
                raise session.end
            if session.acked_sequence == 0:
                continue  # not registered yet: it is told nothing
            message = registry_pb2.RegistryMessage(acked_sequence=session.acked_sequence)
            version = self._cluster.version
            if version != session.told_version:
                message.view.CopyFrom(self._cluster.book.view)
            elif session.told_sequence == session.acked_sequence:
                continue
            await call.write(message.SerializeToString())
            session.told_version, session.told_sequence = version, message.acked_sequence

    def _end(self, connection: int, reason: CallRefused) -> None:
        session = self._sessions.get(connection)
        if session is not None:
            session.end = reason
            session.wake.set()

    def _wake_all(self) -> None:
        for session in self._sessions.values():
            session.wake.set()

