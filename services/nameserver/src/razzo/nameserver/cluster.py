"""The registry in the running process: the clock, the book of the current view, and who wants to know of changes."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable

from razzo.nameserver.registry import Applied, Registry
from razzo.runtime.logs import fields
from razzo.runtime.routes import RouteBook
from razzo.v1 import registry_pb2

log = logging.getLogger(__name__)


class Cluster:
    """What this nameserver knows. Used on one event loop."""

    def __init__(self, registry: Registry, clock_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._clock_ms = clock_ms
        self._connections = itertools.count(1)
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self.book = RouteBook(registry.view())

    @property
    def version(self) -> int:
        """Grows whenever the view changes."""
        return self._registry.version

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called each time the view, or who can be reached, changed."""
        self._listeners.append(listener)

    def new_connection(self) -> int:
        return next(self._connections)

    def beat(self, connection: int, beat: registry_pb2.BrokerBeat) -> Applied:
        """Applies a broker's beat. RequestRefused when it makes no sense."""
        applied = self._registry.beat(connection, beat, self._clock_ms())
        if applied.changed or applied.superseded is not None:
            self._news("beat", connection)
        return applied

    def disconnected(self, connection: int) -> None:
        if self._registry.disconnected(connection):
            self._news("broker lost", connection)

    def expire(self) -> list[int]:
        """The connections whose brokers were silent for too long, to be ended."""
        expired = self._registry.expire(self._clock_ms())
        if expired:
            self._news("brokers expired", *expired)
        return expired

    def reachable(self, broker_name: str) -> registry_pb2.BrokerInfo | None:
        return self._registry.reachable(broker_name)

    def connected(self) -> list[registry_pb2.BrokerInfo]:
        return self._registry.connected()

    def describe(self) -> str:
        return self._registry.describe()

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits for changes of the view until `condition` holds; False when `timeout_s` passed before."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            return condition()
        return True

    def _news(self, what: str, *connections: int) -> None:
        self.book = RouteBook(self._registry.view())
        log.info(what, extra=fields(connections=",".join(map(str, connections)), state=self.describe()))
        for listener in self._listeners:
            listener()
        self._changed.set()
        self._changed = asyncio.Event()
