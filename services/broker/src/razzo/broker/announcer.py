"""Keeps this broker known to every nameserver: one Register stream each, a beat at once when something changed and
every `beat_interval_s` otherwise (proto/razzo/v1/registry.proto). Receives the view of the whole cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import grpc
import grpc.aio

from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault
from razzo.protocol.methods import REGISTER
from razzo.runtime.logs import fields
from razzo.runtime.routes import RouteBook
from razzo.v1 import registry_pb2

log = logging.getLogger(__name__)

RECONNECT_S = 0.1
RECONNECT_S_MAX = 2.0
LEAVE_S_MAX = 0.5
"""How long a stop waits for the nameservers to take the broker out of their routes."""

OnView: TypeAlias = Callable[[registry_pb2.ClusterView], None]


class Announcer:
    """Used on one event loop. `describe` gives the BrokerInfo of now, without its data version."""

    def __init__(
        self,
        nameservers: Sequence[str],
        describe: Callable[[], registry_pb2.BrokerInfo],
        beat_interval_s: float,
        known_timeout_s: float,
        on_view: OnView,
    ) -> None:
        self._describe = describe
        self._known_timeout_s = known_timeout_s
        self._on_view = on_view
        self._links = [_Link(address, self, beat_interval_s) for address in nameservers]
        self._tasks: list[asyncio.Task[None]] = []
        self._acked = asyncio.Event()
        self._view: registry_pb2.ClusterView | None = None
        self._book: RouteBook | None = None
        self._known: set[asyncio.Future[None]] = set()
        self.version = 1
        """Grows with every change of topics, groups or addresses."""

    # --- life

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(link.run(), name=f"register {link.address}") for link in self._links]

    async def stop(self) -> None:
        """Tells every nameserver that the broker leaves, then ends the streams."""
        for link in self._links:
            link.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                while any(link.connected and not link.left for link in self._links):
                    await self._next_ack()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what the broker asks

    def changed(self) -> asyncio.Future[None]:
        """Topics, groups or addresses changed. Done when every connected nameserver has taken it in; BrokerFault when
        one does not in time."""
        self.version += 1
        self._book = None
        for link in self._links:
            link.poke()
        known = asyncio.ensure_future(self._until_known(self.version))
        self._known.add(known)
        known.add_done_callback(self._known.discard)
        known.add_done_callback(_looked_at)
        return known

    def book(self) -> RouteBook:
        """Routes of the cluster as the nameservers told them last, with this broker as it is now."""
        if self._book is None:
            own = self.own()
            brokers = {(each.cluster, each.broker_name, each.broker_id): each for each in self._others()}
            brokers[own.cluster, own.broker_name, own.broker_id] = own
            self._book = RouteBook(registry_pb2.ClusterView(brokers=[brokers[key] for key in sorted(brokers)]))
        return self._book

    def own(self) -> registry_pb2.BrokerInfo:
        info = self._describe()
        info.data_version = self.version
        return info

    @property
    def registered(self) -> list[str]:
        """Nameservers that know this broker."""
        return [link.address for link in self._links if link.connected and link.acked_version > 0]

    def _others(self) -> Sequence[registry_pb2.BrokerInfo]:
        return self._view.brokers if self._view is not None else ()

    # --- what links report

    def view_came(self, view: registry_pb2.ClusterView) -> None:
        self._view = view
        self._book = None
        self._on_view(view)

    def acked(self) -> None:
        self._acked.set()
        self._acked = asyncio.Event()

    async def _next_ack(self) -> None:
        await self._acked.wait()

    async def _until_known(self, version: int) -> None:
        try:
            async with asyncio.timeout(self._known_timeout_s):
                while self._behind(version):
                    await self._next_ack()
        except TimeoutError:
            names = ", ".join(self._behind(version))
            raise BrokerFault(Code.PROXY_TIMEOUT, f"in effect, but not known yet to nameserver {names}") from None

    def _behind(self, version: int) -> list[str]:
        return [link.address for link in self._links if link.connected and link.acked_version < version]


class _Link:
    """The stream to one nameserver."""

    def __init__(self, address: str, announcer: Announcer, beat_interval_s: float) -> None:
        self.address = address
        self.connected = False
        self.acked_version = 0
        self.left = False
        self._announcer = announcer
        self._beat_interval_s = beat_interval_s
        self._poked = asyncio.Event()
        self._leaving = False
        self._sequence = 0
        self._sent: dict[int, int] = {}  # sequence of a beat not acknowledged yet -> data version

    def poke(self) -> None:
        self._poked.set()

    def leave(self) -> None:
        self._leaving = True
        self._poked.set()

    async def run(self) -> None:
        wait_s = RECONNECT_S
        while True:
            try:
                await self._serve()
                log.warning("nameserver ended the stream", extra=fields(nameserver=self.address))
            except grpc.aio.AioRpcError as error:
                level = logging.WARNING if self.connected or wait_s == RECONNECT_S else logging.DEBUG
                log.log(level, "not registered: %s", error.details(), extra=fields(nameserver=self.address))
            if self.connected:
                wait_s = RECONNECT_S
            self.connected = False
            self.acked_version = 0
            self._announcer.acked()
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RECONNECT_S_MAX)

    async def _serve(self) -> None:
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1_000),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._sent.clear()
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            register = channel.stream_stream(
                REGISTER,
                request_serializer=registry_pb2.BrokerBeat.SerializeToString,
                response_deserializer=registry_pb2.RegistryMessage.FromString,
            )
            async for message in register(self._beats()):
                self._take(message)

    async def _beats(self) -> AsyncIterator[registry_pb2.BrokerBeat]:
        sent_version = 0
        while True:
            self._poked.clear()
            version = self._announcer.version
            self._sequence += 1
            beat = registry_pb2.BrokerBeat(sequence=self._sequence, leaving=self._leaving)
            if version != sent_version:
                beat.broker.CopyFrom(self._announcer.own())
                sent_version = version
            self._sent[self._sequence] = version
            yield beat
            if self._leaving:
                await asyncio.Event().wait()  # the stream stays open for the answer; `stop` cancels it
            with suppress(TimeoutError):
                async with asyncio.timeout(self._beat_interval_s):
                    await self._poked.wait()

    def _take(self, message: registry_pb2.RegistryMessage) -> None:
        if not self.connected:
            log.info("registered", extra=fields(nameserver=self.address))
        self.connected = True
        for sequence in [sequence for sequence in self._sent if sequence <= message.acked_sequence]:
            self.acked_version = max(self.acked_version, self._sent.pop(sequence))
        if self._leaving and message.acked_sequence >= self._sequence:
            self.left = True
        if message.HasField("view"):
            self._announcer.view_came(message.view)
        self._announcer.acked()


def _looked_at(known: asyncio.Future[None]) -> None:
    """Nobody may wait for the future: its failure is logged here, once."""
    if not known.cancelled() and known.exception() is not None:
        log.warning("%s", known.exception())
