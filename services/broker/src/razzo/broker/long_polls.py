"""Receives that wait for messages.

A receive that found nothing waits under its key, (consumer group, topic), until it is woken or its time is over; then
it asks the delivery core again. One waiter is woken at a time, and when it got something it wakes the next one, so that
a burst reaches everybody and a single message does not wake a crowd. A waiter that goes away after it was woken passes
the call on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault

Key: TypeAlias = tuple[str, str]
"""Consumer group and topic."""


class LongPolls:
    """All waiting receives of one broker. Used on one event loop."""

    def __init__(self, total_max: int, per_key_max: int) -> None:
        self._total_max = total_max
        self._per_key_max = per_key_max
        self._waiting: dict[Key, dict[asyncio.Future[bool], None]] = {}
        self._groups: dict[str, set[str]] = {}  # topic -> groups with waiters
        self._count = 0
        self._ended = False

    def __len__(self) -> int:
        return self._count

    async def wait(self, key: Key, timeout_s: float) -> bool:
        """True when woken, False when the time is over. TOO_MANY_REQUESTS when too many wait already."""
        if self._ended:
            return False
        waiters = self._waiting.get(key, {})
        if self._count >= self._total_max or len(waiters) >= self._per_key_max:
            raise BrokerFault(
                Code.TOO_MANY_REQUESTS, f"{len(waiters)} receives of this group wait for messages already"
            )
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        self._enter(key, woken)
        timer = loop.call_later(timeout_s, _time_over, woken)
        try:
            return await woken
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled() and woken.result():
                self.wake(key)
            raise
        finally:
            timer.cancel()
            self._leave(key, woken)

    def wake(self, key: Key) -> None:
        """Wakes the receive of this group that waits longest."""
        for woken in self._waiting.get(key, ()):
            if not woken.done():
                woken.set_result(True)
                return

    def wake_topic(self, topic: str) -> None:
        """A message was stored: wakes one receive of every group that waits for the topic."""
        for group in self._groups.get(topic, ()):
            self.wake((group, topic))

    def wake_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.wake(key)

    def end_all(self) -> None:
        """The broker stops: every waiting receive is answered as if its time were over, and none waits any more."""
        self._ended = True
        for waiters in self._waiting.values():
            for woken in waiters:
                _time_over(woken)

    def _enter(self, key: Key, woken: asyncio.Future[bool]) -> None:
        self._waiting.setdefault(key, {})[woken] = None
        self._groups.setdefault(key[1], set()).add(key[0])
        self._count += 1

    def _leave(self, key: Key, woken: asyncio.Future[bool]) -> None:
        waiters = self._waiting[key]
        del waiters[woken]
        self._count -= 1
        if not waiters:
            del self._waiting[key]
            groups = self._groups[key[1]]
            groups.discard(key[0])
            if not groups:
                del self._groups[key[1]]


def _time_over(woken: asyncio.Future[bool]) -> None:
    if not woken.done():
        woken.set_result(False)
