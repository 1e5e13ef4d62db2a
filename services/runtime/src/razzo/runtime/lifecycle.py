"""How a service process lives: start a list, say that it is ready, wait for a signal, stop the same list backwards.

A service's `main` is::

    async def compose(life: Lifecycle) -> Mapping[str, object]:
        store = ...
        await life.start("store", store.open, store.close)
        await life.start("door", door.start, door.stop)
        life.spawn("beats", beats())
        return {"service": "broker", "client": {...}}

    def main() -> None:
        sys.exit(run_service(compose))

When `compose` returns, its answer is printed as the one line of JSON on stdout that whoever started the process waits
for: ``{"event": "ready", ...}``. Everything else goes to stderr.

Exit codes: 0 stopped as asked; 1 a part failed while running, or did not stop in time; 2 settings refused (before this
module is reached); 3 could not start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import uvloop

from razzo.runtime.logs import fields

log = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_NOT_STARTED = 3

STOP_PART_S_MAX = 30.0
"""Seconds a part may take to stop; then it is given up and the next one is stopped."""

Compose: TypeAlias = "Callable[[Lifecycle], Awaitable[Mapping[str, object]]]"


class StartFailed(Exception):
    """The service cannot start for a reason that its operator can mend; the message is the one line they see."""


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    stop: Callable[[], Awaitable[object]]


class Lifecycle:
    """The parts of one running service. Used on one event loop."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop_wanted = asyncio.Event()
        self._failure: BaseException | None = None

    async def start(
        self, name: str, start: Callable[[], Awaitable[object]], stop: Callable[[], Awaitable[object]]
    ) -> None:
        """Starts a part and puts its stop in front of the stops that are already listed."""
        await start()
        self._parts.append(_Part(name, stop))

    def on_stop(self, name: str, stop: Callable[[], Awaitable[object]]) -> None:
        """Lists a stop for something that is already running."""
        self._parts.append(_Part(name, stop))

    def spawn(self, name: str, body: Coroutine[Any, Any, None]) -> None:
        """Runs a loop of the service beside the rest; it is cancelled at its turn in the stop list.

        A loop that ends with an exception stops the whole service: a process that lost a part must not pretend.
        """
        task = asyncio.get_running_loop().create_task(body, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

        async def stop() -> None:
            task.cancel()
            await asyncio.wait([task])

        self._parts.append(_Part(name, stop))

    def request_stop(self, failure: BaseException | None = None) -> None:
        """Asks for a stop, as SIGTERM does; with a failure the exit code is 1."""
        self._failure = self._failure or failure
        self._stop_wanted.set()

    @property
    def stopping(self) -> bool:
        return self._stop_wanted.is_set()

    async def wait_stop_wanted(self) -> None:
        await self._stop_wanted.wait()

    async def stop_all(self) -> bool:
        """Stops every part, the last started first. False when one failed or had to be given up."""
        clean = True
        while self._parts:
            part = self._parts.pop()
            begun = time.monotonic()
            try:
                async with asyncio.timeout(STOP_PART_S_MAX):
                    await part.stop()
            except Exception:
                clean = False
                log.exception("part did not stop cleanly", extra=fields(part=part.name))
            log.debug("part stopped", extra=fields(part=part.name, ms=int((time.monotonic() - begun) * 1000)))
        return clean

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("part failed", extra=fields(part=task.get_name()), exc_info=error)
            self.request_stop(error)


def run_service(compose: Compose) -> int:
    """Runs a service until a signal asks it to stop; the exit code. A second signal ends the process at once."""
    return uvloop.run(_run(compose))


async def _run(compose: Compose) -> int:
    life = Lifecycle()
    loop = asyncio.get_running_loop()
    starting = loop.create_task(_start(compose, life))

    def asked_to_stop(signum: signal.Signals) -> None:
        if life.stopping:
            log.warning("second signal: ending at once", extra=fields(signal=signum.name))
            os._exit(EXIT_FAILED)
        log.info("stopping", extra=fields(signal=signum.name))
        life.request_stop()
        starting.cancel()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, asked_to_stop, signum)
    started = await starting if not starting.cancelled() else True
    if started:
        await life.wait_stop_wanted()
    clean = await life.stop_all()
    if not started:
        return EXIT_NOT_STARTED
    return EXIT_STOPPED if clean and life.failure is None else EXIT_FAILED


async def _start(compose: Compose, life: Lifecycle) -> bool:
    """Composes the service and says that it is ready; False when it cannot start."""
    try:
        ready = await compose(life)
    except asyncio.CancelledError:
        if life.stopping:
            return True  # stopped while starting: not a failure
        raise
    except (StartFailed, OSError) as error:
        log.error("cannot start: %s", error)
        return False
    except Exception:
        log.exception("cannot start")
        return False
    if not life.stopping:
        announce_ready(ready)
    return True


def announce_ready(ready: Mapping[str, object]) -> None:
    """Prints the ready line. A reader that is gone does not stop the service."""
    try:
        sys.stdout.write(json.dumps({"event": "ready", **ready}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        log.warning("nobody reads the ready line")
