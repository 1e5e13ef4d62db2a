"""All commit-log files of a store: loading, rolling, cutting, expiring, finding the bytes of an offset (section 2)."""

import contextlib
import re
from pathlib import Path

from razzo.storage._kernel import (
    LogWriter,
    MappedFile,
    StoredMessage,
    decode_at,
    next_sound,
    store_time_at,
    whole_records,
)
from razzo.storage.errors import CorruptStore
from razzo.storage.files import FileLayer
from razzo.storage.segment import NAME_DIGITS, Preparer, Segment
from razzo.storage.settings import FlushMode, StoreSettings

NAME = re.compile(rf"\d{{{NAME_DIGITS}}}")


class LogView:
    """What readers hold: mapped files from physical offset `start` on. Never changed, only replaced."""

    __slots__ = ("maps", "start")

    def __init__(self, start: int, maps: list[MappedFile]) -> None:
        self.start = start
        self.maps = maps


class CommitLog:
    def __init__(self, folder: Path, settings: StoreSettings, files: FileLayer, writer: LogWriter) -> None:
        self.folder = folder
        self.file_bytes = settings.commit_log_file_bytes
        self._files = files
        self._writer = writer
        self._step = settings.populate_step_bytes
        self._trigger = max(settings.populate_ahead_bytes // 2, settings.populate_step_bytes)
        self.segments: list[Segment] = []
        self.view = LogView(0, [])
        self.damaged: list[tuple[int, int]] = []  # physical ranges recovery could not read
        self._preparer = Preparer(
            files,
            min(settings.populate_ahead_bytes, self.file_bytes),
            settings.populate_step_bytes,
            settings.flush_mode is FlushMode.SYNC,
            self._create,
        )
        self._followed = -1

    # --- opening

    def load(self) -> None:
        """Map every file. CorruptStore for strays, wrong sizes and gaps; an empty last file is a crash's litter."""
        self._files.make_dirs(self.folder)
        names = self._files.list_files(self.folder)
        for name in names:
            if not NAME.fullmatch(name):
                raise CorruptStore(f"{self.folder / name} is not a commit-log file; move it away")
        if names and self._files.size(self.folder / names[-1]) == 0:
            self._files.unlink(self.folder / names.pop())
        for i, name in enumerate(names):
            size = self._files.size(self.folder / name)
            if size != self.file_bytes:
                raise CorruptStore(
                    f"{self.folder / name} has {size} bytes, the configured commit_log_file_bytes is {self.file_bytes}"
                )
            if int(name) != int(names[0]) + i * self.file_bytes:
                raise CorruptStore(
                    f"{self.folder / name} does not follow {names[i - 1]}: a file between them is missing"
                )
            self.segments.append(Segment.load(self._files, self.folder / name, int(name), size))
        self._publish()

    def start(self, end: int, last_store_ms: int) -> None:
        """Recovery found the end of the log: make the file that holds it writable and start preparing ahead."""
        self._writer.set_end(end, last_store_ms)
        if self.segments and self.segments[-1].start <= end < self.segments[-1].end:
            last = self.segments[-1]
            self._writer.segments.add(last.mapped, last.start, last.populated_end)
        self._preparer.start()

    def cut(self, end: int) -> None:
        """Drop everything from physical offset `end` on: later files go, the rest of the file is zeroed durably."""
        self._drop_prepared(self._preparer.discard())
        self._writer.segments.drop()
        while self.segments and self.segments[-1].start >= end and len(self.segments) > 1:
            gone = self.segments.pop()
            gone.seal()
            self._files.unlink(gone.path)
        if self.segments:
            last = self.segments[-1]
            if last.start <= end < last.end:
                if last.fd < 0:
                    last.fd = self._files.open(last.path)
                last.cut(self._files, end)
            self._files.sync_dir(self.folder)
        self._publish()

    def resume(self, end: int, last_store_ms: int) -> None:
        """After a cut of a running store."""
        self._writer.set_end(end, last_store_ms)
        if self.segments and self.segments[-1].start <= end < self.segments[-1].end:
            last = self.segments[-1]
            self._writer.segments.add(last.mapped, last.start, last.populated_end)
        self._followed = -1

    def sound_behind(self, segment: Segment, physical_offset: int) -> int:
        """Physical offset of the first sound record of a file behind an offset, -1 without. Looks only where the file
        system has data: the rest of a prepared file is a gigabyte of nothing."""
        offset = physical_offset + 1 - segment.start
        # All ranges first: looking into one makes the kernel read ahead, and what it has read counts as data.
        for first, last in list(self._files.data_ranges(segment.fd, offset, self.file_bytes)):
            # A record may begin just before the data does, where its first bytes are zeros.
            begin = segment.start + max(offset, first - 8)
            sound = next_sound(segment.mapped, segment.start, begin, segment.start + last)
            if sound >= 0:
                return sound
        return -1

    # --- writing

    def add_segment(self) -> None:
        """One more file after the last. DiskFull."""
        start = self.segments[-1].end if self.segments else self._writer.end_physical
        self._followed = -1
        segment = self._preparer.take(start) or self._create(start)
        self.segments.append(segment)
        self._writer.segments.add(segment.mapped, segment.start, segment.populated_end)
        self._publish()

    def add_pages(self, end: int) -> None:
        """Populate up to physical offset `end` (and a step more). DiskFull."""
        for segment in self.segments:
            if segment.start < end <= segment.end:
                ready = segment.populate(self._files, end + self._step)
                self._writer.segments.set_populated(segment.start, ready)

    def written(self, end: int) -> None:
        """The log ends at `end` now: let the preparer run ahead of it."""
        if 0 <= end - self._followed < self._trigger // 2:
            return
        self._followed = end
        for segment in reversed(self.segments):
            if segment.start <= end:
                self._writer.segments.set_populated(segment.start, segment.populated_end)
                self._preparer.follow(segment, end)
                break

    def trim(self) -> None:
        """After a roll: the writer forgets full files."""
        self._writer.segments.keep_current(self._writer.end_physical)

    def unsynced(self, flushed: int, end: int) -> list[Segment]:
        """Segments holding bytes of [flushed, end)."""
        return [segment for segment in self.segments if segment.start < end and segment.end > flushed]

    def sync(self, segments: list[Segment]) -> None:
        for segment in segments:
            if segment.fd >= 0:
                self._files.sync_data(segment.fd)

    def seal_below(self, flushed: int) -> None:
        """Files that are full and on disk need no descriptor any more."""
        for segment in self.segments[:-1]:
            if segment.end <= flushed:
                segment.seal()

    def close(self) -> None:
        self._drop_prepared(self._preparer.stop())
        for segment in self.segments:
            segment.seal()
        self._writer.segments.drop()
        self.segments = []
        self._publish()

    def _drop_prepared(self, left: Segment | None) -> None:
        if left is not None:
            left.seal()
            with contextlib.suppress(OSError):
                self._files.unlink(left.path)

    # --- reading

    @property
    def min_offset(self) -> int:
        return self.view.start

    def read_at(self, physical_offset: int, limit: int) -> StoredMessage | None:
        """The record that begins at an offset and ends at or below `limit`."""
        view = self.view
        index = (physical_offset - view.start) // self.file_bytes
        if not 0 <= index < len(view.maps) or physical_offset >= limit:
            return None
        message = decode_at(view.maps[index], view.start + index * self.file_bytes, physical_offset)
        return None if message is None or physical_offset + message.size > limit else message

    def store_time(self, physical_offset: int) -> int:
        """Store time of the record at an offset, -1 when there is none."""
        view = self.view
        index, at = divmod(physical_offset - view.start, self.file_bytes)
        if not 0 <= index < len(view.maps):
            return -1
        return store_time_at(view.maps[index], at)

    def tail(self, physical_offset: int, max_bytes: int, limit: int) -> bytes:
        """Whole raw records from an offset up to `limit`, inside one file; at an end-of-file marker those of the next
        file, at a damaged record those behind it. ValueError when no record begins there."""
        view = self.view
        while True:
            index = (physical_offset - view.start) // self.file_bytes
            if physical_offset >= limit or not 0 <= index < len(view.maps):
                return b""
            mapped, start = view.maps[index], view.start + index * self.file_bytes
            reason, end = whole_records(mapped, start, physical_offset, limit, max_bytes)
            if end > physical_offset:
                return bytes(memoryview(mapped)[physical_offset - start : end - start])
            if reason == "ok":
                return b""
            damaged = reason == "crc" or any(first <= physical_offset < last for first, last in self.damaged)
            if reason != "blank" and not damaged:
                raise ValueError(f"no record begins at offset {physical_offset} ({reason})")
            sound = next_sound(mapped, start, physical_offset + 1, start + self.file_bytes) if damaged else -1
            physical_offset = sound if sound >= 0 else start + self.file_bytes

    # --- expiring

    def drop_first(self) -> Segment:
        """Remove the oldest file; the last one never goes."""
        if len(self.segments) < 2:
            raise AssertionError("the last commit-log file is never removed")
        gone = self.segments[0]
        self._files.unlink(gone.path)
        self.segments = self.segments[1:]
        self._publish()
        gone.seal()
        self._files.reach("retention.unlinked")
        return gone

    def _create(self, start: int) -> Segment:
        return Segment.create(self._files, self.folder, start, self.file_bytes)

    def _publish(self) -> None:
        start = self.segments[0].start if self.segments else self._writer.end_physical
        self.view = LogView(start, [segment.mapped for segment in self.segments])
