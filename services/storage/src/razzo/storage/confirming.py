"""Who waits for the confirm offset: coroutines in wait_flushed and callbacks of on_confirmed. Everything here happens
on the loop thread but `from_thread`."""

import asyncio
import heapq
from collections.abc import Callable

from razzo.storage.errors import StoreError


class Confirming:
    """`flushed` and `confirm` tell where the log stands."""

    def __init__(self, waiters_max: int, flushed: Callable[[], int], confirm: Callable[[], int]) -> None:
        self._waiters_max = waiters_max
        self._flushed = flushed
        self._confirm = confirm
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heap: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._turn = 0
        self._callbacks: list[Callable[[int], None]] = []
        self._announcing = False
        self._announced = -1

    def __len__(self) -> int:
        return len(self._heap)

    def attach_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add_callback(self, callback: Callable[[int], None]) -> None:
        self._callbacks.append(callback)

    async def wait(self, offset: int, timeout_s: float, request: Callable[[], None]) -> bool:
        """True once flushed up to `offset`, False after timeout_s. StoreError when too many wait already."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
        if len(self._heap) >= self._waiters_max:
            raise StoreError(f"{self._waiters_max} senders are waiting for the disk already")
        future: asyncio.Future[bool] = loop.create_future()
        self._turn += 1
        heapq.heappush(self._heap, (offset, self._turn, future))
        request()
        timer = loop.call_later(timeout_s, _give_up, future)
        released = False
        try:
            released = await future
            return released
        finally:
            timer.cancel()
            if not released:
                self._heap = [entry for entry in self._heap if not entry[2].done()]
                heapq.heapify(self._heap)

    def written(self) -> None:
        """Something was appended in ASYNC mode: tell the callbacks soon, once for many appends."""
        if self._announcing or not self._callbacks:
            return
        if self._loop is None:
            self.announce()
            return
        self._announcing = True
        self._loop.call_soon(self.announce)

    def announce(self) -> None:
        """Tell the callbacks, when the offset has moved since the last time."""
        self._announcing = False
        confirm = self._confirm()
        if confirm != self._announced:
            self._announced = confirm
            for callback in self._callbacks:
                callback(confirm)

    def release(self) -> None:
        """The log was flushed further."""
        heap, flushed = self._heap, self._flushed()
        while heap and heap[0][0] <= flushed:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(True)
        self.announce()

    def fail(self, error: StoreError) -> None:
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(error)
        self._heap.clear()

    def from_thread(self, call: Callable[[], None]) -> None:
        """Run something on the loop. Without a loop, or with a closed one, nobody can be waiting."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:
            if self._loop is loop:
                self._loop = None


def _give_up(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
