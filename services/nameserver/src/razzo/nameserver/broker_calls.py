"""What the nameserver asks of brokers for clients: one broker by name, or several at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from razzo.door.methods import Call
from razzo.nameserver.cluster import Cluster
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RazzoError
from razzo.runtime.forwarding import Forwarder, Metadata, carried_metadata, peer_address
from razzo.runtime.logs import fields
from razzo.v1 import registry_pb2

log = logging.getLogger(__name__)

UNARY_TIMEOUT_S = 10.0
"""For a unary call whose client set no deadline."""
STREAM_TIMEOUT_S = 60.0
"""For a stream whose client set no deadline."""
IN_BACKGROUND_MAX = 10_000
"""Notices to brokers (heartbeats) under way at once; above it further ones are left out: the client repeats them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One broker's answer, or why there is none."""

    broker: registry_pb2.BrokerInfo
    answer: bytes | None
    error: RazzoError | None


class BrokerCalls:
    """Used on one event loop."""

    def __init__(self, cluster: Cluster, forwarder: Forwarder) -> None:
        self._cluster = cluster
        self._forwarder = forwarder
        self._background: set[asyncio.Task[None]] = set()
        cluster.on_change(self._close_channels)

    def named(self, broker_name: str) -> registry_pb2.BrokerInfo:
        """The broker of a name, as long as it is connected. BrokerFault when it is not."""
        broker = self._cluster.reachable(broker_name)
        if broker is None:
            raise BrokerFault(Code.INTERNAL_SERVER_ERROR, f"the broker {broker_name!r} is not there")
        return broker

    async def forward(self, broker: registry_pb2.BrokerInfo, request: bytes, call: Call) -> bytes:
        """The client's own call, as it is, by one broker."""
        remaining = call.time_remaining()
        timeout_s = UNARY_TIMEOUT_S if remaining is None else remaining
        return await self._forwarder.unary(peer_address(broker), call.path, request, carried_metadata(call), timeout_s)

    async def forward_stream(self, broker: registry_pb2.BrokerInfo, request: bytes, call: Call) -> None:
        """The client's own call, as it is, its answers as they come; cancelled with the client's call."""
        remaining = call.time_remaining()
        timeout_s = STREAM_TIMEOUT_S if remaining is None else remaining
        answers = self._forwarder.stream(peer_address(broker), call.path, request, carried_metadata(call), timeout_s)
        try:
            async for answer in answers:
                await call.write(answer)
        finally:
            await answers.aclose()

    async def ask_all(
        self,
        brokers: Iterable[registry_pb2.BrokerInfo],
        path: str,
        request: bytes,
        metadata: Metadata,
        timeout_s: float,
    ) -> list[Asked]:
        """The same call to several brokers at once; every answer or error, in the order of `brokers`."""

        async def ask(broker: registry_pb2.BrokerInfo) -> Asked:
            try:
                answer = await self._forwarder.unary(peer_address(broker), path, request, metadata, timeout_s)
            except RazzoError as error:
                return Asked(broker, None, error)
            return Asked(broker, answer, None)

        return list(await asyncio.gather(*(ask(broker) for broker in brokers)))

    def tell_in_background(
        self,
        brokers: Iterable[registry_pb2.BrokerInfo],
        path: str,
        request: bytes,
        metadata: Metadata,
        timeout_s: float,
    ) -> None:
        """The same call to several brokers; nobody waits for their answers."""
        asked = list(brokers)
        if not asked or len(self._background) >= IN_BACKGROUND_MAX:
            return

        async def tell() -> None:
            for result in await self.ask_all(asked, path, request, metadata, timeout_s):
                if result.error is not None:
                    name = result.broker.broker_name
                    log.debug("notice failed: %s", result.error.message, extra=fields(broker=name, path=path))

        task = asyncio.create_task(tell())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Ends what is under way and closes the channels."""
        for task in self._background:
            task.cancel()
        await self._forwarder.close()

    def _close_channels(self) -> None:
        self._forwarder.retain(peer_address(broker) for broker in self._cluster.connected())
