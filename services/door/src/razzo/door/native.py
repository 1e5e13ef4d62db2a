"""The method table on the native door: nghttp2 in Cython (`_door.pyx`), one protocol for each connection.

Plaintext and TLS share one port; a connection's first byte tells them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from razzo.door._door import Door
from razzo.door.listener import Certificates, Listener
from razzo.door.methods import MethodTable
from razzo.door.observers import MethodCounts, Observers
from razzo.door.server import Bound, DoorLimits, TlsFiles
from razzo.door.tls import CertificateWatch

SWEEP_S_MAX = 1.0
"""Silence, handshakes and closing connections are looked at this often, more often when a limit is shorter."""
SWEEP_S_MIN = 0.02
DRAIN_ROUND_TRIP_S = 1.0
"""How long a stop waits for a client to have seen the first GOAWAY before it sends the final one."""
CUT_S = 1.0
"""After the grace time: what connections and cancelled handlers get to end."""


class DoorServer:
    """Serves a method table by nghttp2. Built and used on one running event loop."""

    def __init__(
        self, table: MethodTable, limits: DoorLimits, tls: TlsFiles | None, observers: Observers | None = None
    ) -> None:
        self._table = table
        self._limits = limits
        self._tls = tls
        self._observers = observers or Observers()
        self._door: Door | None = None
        self._listener: Listener | None = None
        self._sweeps: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int, tls_port: int | None = None) -> Bound:
        """Listens; both ports, when two are asked for, take plaintext and TLS alike."""
        if self._listener is not None:
            raise RuntimeError("the server is started already")
        loop = asyncio.get_running_loop()
        door = self._door = Door(loop, self._table, self._limits, self._observers)
        certificates = None if self._tls is None else Certificates(CertificateWatch(self._tls))
        listener = Listener(
            self._limits,
            certificates,
            self._tls is None or not self._tls.compulsory,
            door.protocol,
            door.connections,
        )
        try:
            bound = await listener.listen(host, port)
            secure = None
            if self._tls is not None:
                secure = await listener.listen(host, tls_port) if tls_port and tls_port != bound else bound
        except BaseException:
            listener.close()
            raise
        self._listener = listener
        self._sweep()
        return Bound(host, bound, secure)

    async def stop(self, grace_s: float) -> None:
        listener, self._listener = self._listener, None
        door = self._door
        if listener is None or door is None:
            return
        listener.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        if grace_s > 0:
            for connection in list(door.connections):
                connection.begin_drain()
            await _within(door.no_connections(), min(grace_s, DRAIN_ROUND_TRIP_S))
            for connection in list(door.connections):
                connection.finish_drain()
            await _within(door.no_connections(), deadline - loop.time())
        for connection in list(door.connections):
            connection.cut()
        await _within(door.no_connections(), CUT_S)
        for connection in list(door.connections):
            connection.abort()
        await _within(door.no_connections(), CUT_S)
        await _within(door.no_calls(), CUT_S)
        await listener.closed()
        if self._sweeps is not None:
            self._sweeps.cancel()
            self._sweeps = None

    def method_counts(self) -> Mapping[str, MethodCounts]:
        return {} if self._door is None else self._door.counts()

    def _sweep(self) -> None:
        assert self._door is not None
        self._door.sweep()
        shortest = min(self._limits.idle_s, self._limits.handshake_s, self._limits.keepalive_s) / 4
        period_s = min(SWEEP_S_MAX, max(SWEEP_S_MIN, shortest))
        self._sweeps = asyncio.get_running_loop().call_later(period_s, self._sweep)


async def _within(done: asyncio.Future[None], seconds: float) -> None:
    """Waits for it, but not longer."""
    await asyncio.wait((done,), timeout=max(0.0, seconds))
