"""One commit-log file, and the thread that makes bytes ready before the writer needs them.

A segment is reserved whole when it is created (a full disk shows here, as DiskFull, never as SIGBUS). Before the writer
may touch a page the page is zero-written and mapped in: faulting in fresh file pages one by one costs several times
more than writing them in megabyte steps. Only bytes at or above `populated_end` are ever zeroed, and the writer only
writes below it, so the two never meet; both move it under `lock`.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from razzo.storage._kernel import MappedFile, start_writeback
from razzo.storage.errors import DiskFull
from razzo.storage.files import FileLayer

NAME_DIGITS = 20


def file_name(start: int) -> str:
    """Commit-log and queue files are named by the byte offset they start at, in 20 digits."""
    return f"{start:0{NAME_DIGITS}d}"


class Segment:
    """`start` physical offset of the first byte; `populated_end` physical offset below which bytes may be written."""

    def __init__(self, path: Path, start: int, fd: int, mapped: MappedFile, populated_end: int) -> None:
        self.path = path
        self.start = start
        self.fd = fd
        self.mapped = mapped
        self.end = start + mapped.size
        self.populated_end = populated_end
        self.lock = threading.Lock()

    @classmethod
    def create(cls, files: FileLayer, folder: Path, start: int, size: int) -> "Segment":
        """A new file with all its blocks. DiskFull leaves no file behind."""
        path = folder / file_name(start)
        fd = files.open(path, create=True, exclusive=True)
        try:
            files.reserve(fd, 0, size)
            mapped = files.map(fd, size)
            files.sync_data(fd)
            files.sync_dir(folder)
        except BaseException:
            files.close(fd)
            with contextlib.suppress(OSError):
                files.unlink(path)
            raise
        files.reach("segment.created")
        return cls(path, start, fd, mapped, start)

    @classmethod
    def load(cls, files: FileLayer, path: Path, start: int, size: int) -> "Segment":
        """An existing file; all of it counts as written until recovery says where the log ends."""
        fd = files.open(path)
        try:
            mapped = files.map(fd, size)
        except BaseException:
            files.close(fd)
            raise
        return cls(path, start, fd, mapped, start + size)

    def populate(self, files: FileLayer, end: int, *, write_soon: bool = False) -> int:
        """Make bytes below physical offset `end` writable; returns the new populated_end."""
        with self.lock:
            end = min(end, self.end)
            if end > self.populated_end and self.fd >= 0:
                offset = self.populated_end - self.start
                files.zero(self.fd, offset, end - self.populated_end)
                self.mapped.populate(offset, end - self.populated_end)
                if write_soon:
                    start_writeback(self.fd, offset, end - self.populated_end)
                self.populated_end = end
            return self.populated_end

    def cut(self, files: FileLayer, end: int) -> None:
        """Forget bytes from physical offset `end` on, durably, so that an old tail can never be taken for records
        again."""
        with self.lock:
            files.zero_tail(self.fd, end - self.start, self.end - end)
            files.sync_data(self.fd)
            self.populated_end = end

    def seal(self) -> None:
        """No more writes or syncs: give the descriptor back, keep the mapping for readers."""
        with self.lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1


class Preparer:
    """Background thread: keeps `ahead_bytes` populated in front of the writer and the next segment created.

    It only ever helps: what it could not do in time, or at all (DiskFull), the writer does itself and gets the error.
    """

    def __init__(self, files: FileLayer, ahead_bytes: int, step_bytes: int, write_soon: bool,
                 create: Callable[[int], Segment]) -> None:  # fmt: skip
        self._files = files
        self._ahead = ahead_bytes
        self._step = step_bytes
        self._write_soon = write_soon
        self._create = create
        self._condition = threading.Condition()
        self._current: Segment | None = None
        self._position = 0
        self._next: Segment | None = None
        self._next_start = -1
        self._creating = False
        self._stopping = False
        self._failed_at = -1
        self._thread = threading.Thread(target=self._run, name="razzo-log-preparer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def follow(self, current: Segment, position: int) -> None:
        """The writer is in `current` at physical offset `position`."""
        with self._condition:
            self._current = current
            self._position = position
            self._condition.notify()

    def discard(self) -> Segment | None:
        """Stop following (the log is being cut); returns a prepared segment, which has no place any more."""
        with self._condition:
            while self._creating:
                self._condition.wait()
            self._current = None
            self._failed_at = -1
            left, self._next = self._next, None
            return left

    def take(self, start: int) -> Segment | None:
        """The segment prepared for `start`, waiting for one under way; None when the writer has to create it."""
        with self._condition:
            while self._creating and self._next_start == start:
                self._condition.wait()
            taken, self._next = self._next, None
            if taken is not None and taken.start != start:
                raise AssertionError(f"prepared segment {taken.start}, wanted {start}")
            # Whatever comes at `start` is the writer's now; nothing is prepared until it says where it is.
            self._current = None
            return taken

    def stop(self) -> Segment | None:
        """End the thread; returns a prepared segment nobody took."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()
        with self._condition:
            left, self._next = self._next, None
            return left

    def _run(self) -> None:
        while True:
            with self._condition:
                step = self._choose()
                while step is None and not self._stopping:
                    self._condition.wait()
                    step = self._choose()
                if self._stopping or step is None:
                    return
                segment, end = step
                if segment is None:
                    self._creating = True
                    self._next_start = end
            if segment is not None:
                self._populate(segment, end)
            else:
                self._make_next(end)

    def _choose(self) -> tuple[Segment | None, int] | None:
        """What to do next: (segment, end to populate), (None, start to create), or nothing."""
        current = self._current
        if current is None:
            return None
        wanted = self._position + self._ahead
        if current.populated_end < min(wanted, current.end):
            return current, min(current.populated_end + self._step, current.end)
        if wanted < current.end or self._failed_at == current.end:
            return None
        if self._next is None:
            return None, current.end
        if self._next.populated_end < min(wanted, self._next.end):
            return self._next, min(self._next.populated_end + self._step, self._next.end)
        return None

    def _populate(self, segment: Segment, end: int) -> None:
        try:
            segment.populate(self._files, end, write_soon=self._write_soon)
        except (OSError, DiskFull):
            # The writer meets the same error when it gets there, and reports it to whoever sends.
            with self._condition:
                self._current = None

    def _make_next(self, start: int) -> None:
        made: Segment | None = None
        try:
            made = self._create(start)
        except (OSError, DiskFull):
            self._failed_at = start
        with self._condition:
            self._creating = False
            self._next = made
            self._condition.notify_all()
