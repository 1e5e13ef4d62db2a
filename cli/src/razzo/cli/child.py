"""One service of `razzo up` as a child process: started, watched until it is ready, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from razzo.cli.exits import CommandFailed, Exit
from razzo.cli.logfile import RollingLog

READY_S_MAX = 300.0
"""How long a service may take from its start to its ready line: a broker reads a torn log before it serves."""

STOP_S_MAX = 60.0
"""How long a service may take to stop cleanly; then it is killed."""

OUTPUT_BYTES_MAX = 1 << 20
"""The longest ready line, and how much of a service's output is buffered before the service has to wait."""

READ_BYTES = 1 << 16
TAIL_BYTES = 4_096

TETHER = Path(__file__).with_name("tether.py")


def how_it_ended(code: int) -> str:
    """An exit code in words: `exit code 3`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


class Child:
    """A running service. Its standard error, and all of its standard output but the ready line, go to its log."""

    def __init__(self, name: str, process: Process, log: RollingLog) -> None:
        self.name = name
        self.ready: dict[str, Any] = {}
        self._process = process
        self._log = log
        self._tail = b""
        self._lost_chunks = 0
        assert process.stderr is not None
        self._pumps = [asyncio.create_task(self._pump(process.stderr))]

    @classmethod
    async def start(cls, name: str, command: Sequence[str], log: RollingLog) -> Child:
        """Starts the command on a tether: the kernel kills it when this process dies, however it dies.

        A session of its own keeps the terminal's Ctrl-C away from it, so that services stop in order.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(TETHER),
            str(os.getpid()),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            limit=OUTPUT_BYTES_MAX,
            start_new_session=True,
        )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    @property
    def was_ready(self) -> bool:
        return bool(self.ready)

    async def wait(self) -> int:
        """The exit code, once it is gone and its last words are in its log; minus the signal that killed it."""
        code = await self._process.wait()
        await asyncio.wait(self._pumps)  # unlike gather, a cancelled wait leaves them running
        self._log.close()
        return code

    async def wait_ready(self) -> None:
        """Returns when the service has printed its ready line. CommandFailed when it ended, or took too long."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_S_MAX):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise CommandFailed(
                Exit.REFUSED, f"the {self.name} was not ready within {READY_S_MAX:g} s (log: {self._log.path})"
            ) from None
        if not line:
            code = await self.wait()
            raise CommandFailed(
                Exit.REFUSED,
                f"the {self.name} did not start ({how_it_ended(code)}): {self.last_words()} (log: {self._log.path})",
            )
        try:
            self.ready = dict(json.loads(line))
        except ValueError:
            raise CommandFailed(
                Exit.FAULT, f"the {self.name} printed no ready line but {line[:200]!r} (log: {self._log.path})"
            ) from None
        self._pumps.append(asyncio.create_task(self._pump(self._process.stdout)))

    async def stop(self) -> int:
        """Asks it to stop and waits; kills it when it takes too long. The exit code."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S_MAX):
                return await self.wait()
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        self.kill_now()
        return await self.wait()

    def kill_now(self) -> None:
        self._signal(signal.SIGKILL)

    def last_words(self) -> str:
        """The last line that it logged."""
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"

    def state(self) -> dict[str, Any]:
        """What the ready line of `razzo up` says of it: its own ready line, its process and its log."""
        own = {key: value for key, value in self.ready.items() if key != "event"}
        return {**own, "pid": self.pid, "log": str(self._log.path)}

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _pump(self, stream: asyncio.StreamReader) -> None:
        """Copies a stream to the log until its end. A disk that refuses costs log lines, never the service."""
        while chunk := await stream.read(READ_BYTES):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            try:
                if self._lost_chunks:
                    self._log.write(f"razzo up: {self._lost_chunks} pieces of this log could not be written\n".encode())
                    self._lost_chunks = 0
                self._log.write(chunk)
            except OSError:
                self._lost_chunks += 1
