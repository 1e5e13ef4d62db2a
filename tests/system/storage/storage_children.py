"""Processes of their own that live a Store's life by a plan until a crash point or a kill -9 ends them.

They are forked from a clean server process (multiprocessing's forkserver), which costs milliseconds. A child reports
over a pipe before and after each step of its plan, so that the parent knows what was acknowledged when it died.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store_pair import Clock, new_message
from twin.store import Message

from razzo.storage import Store, StoreSettings
from razzo.storage.files import FileLayer

REPORT_S_MAX = 60
FLUSH_S_MAX = 30
CRASHED = 137
"""Exit code of a child that its crash point ended, the one a kill -9 leaves in a shell."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["storage_children", "random_messages"])

Step = tuple[Any, ...]
"""("append", [messages]), ("truncate", offset), ("delete_topic", name), ("save_config", name, value), ("retain",
now_ms), ("flush",), ("hold",), ("close",) or ("open",). "hold" waits for the kill. An append counts as done once
it is flushed."""


class CrashingFiles(FileLayer):
    """The real layer, which ends the process without ceremony when one point is reached for the n-th time."""

    def __init__(self, point: str, count: int):
        super().__init__()
        self.point, self.left = point, count

    def reach(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os._exit(CRASHED)


@dataclass
class Plan:
    """What a child does. `crash`: (point, how often it must be reached); None: nothing but a kill ends it early."""

    root: Path
    settings: StoreSettings
    steps: list[Step]
    now_ms: int = 1_700_000_000_000
    crash: tuple[str, int] | None = None


@dataclass
class _Life:
    plan: Plan
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    store: Store | None = None

    def take(self, step: Step) -> None:
        getattr(self, f"_{step[0]}")(*step[1:])

    def _open(self) -> None:
        files = CrashingFiles(*self.plan.crash) if self.plan.crash else FileLayer()
        self.store = Store(self.plan.root, self.plan.settings, clock_ms=Clock(self.plan.now_ms), files=files)
        self.store.attach_loop(self.loop)
        self.store.open()

    def _append(self, messages: list[Message]) -> None:
        assert self.store is not None
        last = self.store.append([new_message(message) for message in messages])[-1]
        self._wait(last.physical_offset + last.size)

    def _flush(self) -> None:
        assert self.store is not None
        self._wait(self.store.max_physical_offset)

    def _wait(self, offset: int) -> None:
        assert self.store is not None
        assert self.loop.run_until_complete(self.store.wait_flushed(offset, FLUSH_S_MAX))

    def _hold(self) -> None:
        threading.Event().wait()

    def _truncate(self, offset: int) -> None:
        assert self.store is not None
        self.store.truncate(offset)

    def _delete_topic(self, topic: str) -> None:
        assert self.store is not None
        self.store.delete_topic(topic)

    def _save_config(self, name: str, value: dict[str, Any]) -> None:
        assert self.store is not None
        self.store.save_config(name, value)

    def _retain(self, now_ms: int) -> None:
        assert self.store is not None
        self.store.run_retention(now_ms)

    def _close(self) -> None:
        assert self.store is not None
        self.store.close()


def _live(plan: Plan, reports: Any) -> None:
    """The child's main function."""
    life = _Life(plan)
    for number, step in enumerate(plan.steps):
        reports.send(("begun", number))
        life.take(step)
        reports.send(("done", number))


class Child:
    """A child living its plan. `begun` and `done` count steps: `begun == done + 1` means one was under way."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.begun = self.done = 0
        self._ended = False
        self._news = threading.Condition()
        reports, far_end = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_live, args=(plan, far_end), daemon=True)
        self._process.start()
        far_end.close()
        self._reader = threading.Thread(target=self._read, args=(reports,), daemon=True)
        self._reader.start()

    def _read(self, reports: Any) -> None:
        with reports:
            while True:
                try:
                    kind, number = reports.recv()
                except (EOFError, OSError):  # the far end is gone, perhaps in the middle of a report
                    break
                with self._news:
                    if kind == "begun":
                        self.begun = number + 1
                    else:
                        self.done = number + 1
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_done(self, steps: int) -> None:
        """Waits until that many steps are done."""
        with self._news:
            in_time = self._news.wait_for(lambda: self._ended or self.done >= steps, REPORT_S_MAX)
        assert in_time, f"{self.done} of {steps} steps done after {REPORT_S_MAX} s"
        assert self.done >= steps, f"{self.done} of {steps} steps done; ended with {self.end()}"

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def end(self) -> int | None:
        """Waits for the child's end; its exit code, negative for a signal."""
        self._process.join(REPORT_S_MAX)
        self._reader.join(REPORT_S_MAX)
        return self._process.exitcode


def in_child(function: Callable[..., Any], *arguments: Any) -> tuple[int | None, list[Any]]:
    """Runs an importable function in a child, which gets a `say` as last argument; (exit code, everything said)."""
    near_end, far_end = _context.Pipe(duplex=False)
    process = _context.Process(target=_say_with, args=(function, arguments, far_end), daemon=True)
    process.start()
    far_end.close()
    said = []
    with near_end:
        while near_end.poll(REPORT_S_MAX):
            try:
                said.append(near_end.recv())
            except (EOFError, OSError):
                break
    process.join(REPORT_S_MAX)
    return process.exitcode, said


def _say_with(function: Callable[..., Any], arguments: tuple[Any, ...], pipe: Any) -> None:
    function(*arguments, pipe.send)
