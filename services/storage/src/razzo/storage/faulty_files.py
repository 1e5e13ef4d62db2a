"""The faulty twin of FileLayer, for tests: refuses chosen operations and stops at chosen crash points.

files = FaultyFiles()
files.fail("reserve", errno.ENOSPC)            # from now on
files.fail("sync_data", errno.EIO, after=2, times=1)   # the third one only
files.heal()
files.at("flush.before", callback)
"""

import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from razzo.storage._kernel import MappedFile
from razzo.storage.files import CRASH_POINTS, FileLayer

OPERATIONS = frozenset({"open", "reserve", "pwrite", "set_size", "map", "sync_data", "rename", "unlink"})


@dataclass
class _Fault:
    code: int
    after: int
    times: int


class FaultyFiles(FileLayer):
    """`calls` counts operations, `reached` crash points; `used_percent` overrides the disk's."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.used_percent: int | None = None
        self._faults: dict[str, _Fault] = {}
        self._hooks: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def fail(self, operation: str, code: int, *, after: int = 0, times: int = 1 << 30) -> None:
        """Let `after` calls pass, then refuse `times` calls with this errno."""
        if operation not in OPERATIONS:
            raise ValueError(f"no such operation: {operation}")
        with self._lock:
            self._faults[operation] = _Fault(code, after, times)

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def at(self, point: str, hook: Callable[[], None]) -> None:
        """Call `hook` at a crash point; what it raises comes out there."""
        if point not in CRASH_POINTS:
            raise ValueError(f"no such crash point: {point}")
        self._hooks[point] = hook

    def reach(self, point: str) -> None:
        if point not in CRASH_POINTS:
            raise AssertionError(f"unknown crash point {point}")
        with self._lock:
            self.reached[point] += 1
        hook = self._hooks.get(point)
        if hook is not None:
            hook()

    def _count(self, operation: str) -> None:
        with self._lock:
            self.calls[operation] += 1
            fault = self._faults.get(operation)
            if fault is None:
                return
            if fault.after > 0:
                fault.after -= 1
                return
            if fault.times <= 0:
                return
            fault.times -= 1
        error = OSError(fault.code, os.strerror(fault.code))
        raise self._refusal(error, None) if operation in ("open", "reserve", "pwrite", "set_size", "map") else error

    def open(self, path: Path, *, create: bool = False, exclusive: bool = False) -> int:
        self._count("open")
        return super().open(path, create=create, exclusive=exclusive)

    def reserve(self, fd: int, offset: int, length: int) -> None:
        self._count("reserve")
        super().reserve(fd, offset, length)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._count("pwrite")
        super().pwrite(fd, data, offset)

    def set_size(self, fd: int, size: int) -> None:
        self._count("set_size")
        super().set_size(fd, size)

    def map(self, fd: int, size: int, *, writable: bool = True) -> MappedFile:
        self._count("map")
        return super().map(fd, size, writable=writable)

    def sync_data(self, fd: int) -> None:
        self._count("sync_data")
        super().sync_data(fd)

    def sync_everything(self, folder: Path) -> None:
        self._count("sync_data")
        super().sync_everything(folder)

    def rename(self, source: Path, target: Path) -> None:
        self._count("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._count("unlink")
        super().unlink(path)

    def usage_percent(self, folder: Path) -> int:
        return super().usage_percent(folder) if self.used_percent is None else self.used_percent
