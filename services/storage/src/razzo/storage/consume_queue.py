"""Consume queues on disk: files of 20-byte units, one folder for each topic and queue id (section 3).

Files have RocketMQ's exact logical size but only as many blocks as are in use plus a chunk: a failed reservation is
DiskFull before anything is written. The newest file of each queue stays mapped; older ones are mapped for readers on
demand.
"""

import contextlib
import threading
from collections import OrderedDict
from pathlib import Path

from razzo.storage._kernel import MappedFile, Queue, count_live_units, first_unit_from, unit_of
from razzo.storage.files import FileLayer
from razzo.storage.segment import NAME_DIGITS, file_name
from razzo.storage.settings import UNIT_BYTES, StoreSettings

RECOVERED_FILES = 3  # newest files whose units are checked at load
GAP_UNITS_MAX_FILES = 4  # a longer run of missing units restarts the queue instead of being filled


class OldFiles:
    """Queue files mapped for readers, least recently used ones dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._maps: OrderedDict[Path, MappedFile] = OrderedDict()

    def get(self, files: FileLayer, path: Path, size: int) -> MappedFile:
        with self._lock:
            mapped = self._maps.get(path)
            if mapped is not None:
                self._maps.move_to_end(path)
                return mapped
        fd = files.open(path)
        try:
            mapped = files.map(fd, size, writable=False)
        finally:
            files.close(fd)
        with self._lock:
            self._maps[path] = mapped
            if len(self._maps) > self._limit:
                self._maps.popitem(last=False)
        return mapped

    def forget(self, path: Path) -> None:
        with self._lock:
            self._maps.pop(path, None)


class ConsumeQueue:
    """`units` is the kernel's Queue (numbers); this object owns the files. Units are counted from the queue's
    beginning; what they are to queue offsets, `offset_of` and `unit_holding` say: the same thing here."""

    unit_bytes = UNIT_BYTES
    batched = False

    def __init__(self, folder: Path, topic: str, queue_id: int, settings: StoreSettings, files: FileLayer,
                 old_files: OldFiles) -> None:  # fmt: skip
        self.folder = folder
        self.topic = topic
        self.queue_id = queue_id
        self._settings = settings
        self._files = files
        self._old = old_files
        self.per_file = settings.consume_queue_file_units
        self.file_bytes = self.per_file * self.unit_bytes
        self.units = Queue(topic, queue_id, self.per_file, self.batched)
        self.units.files_of = self
        self.first_file = 0  # first unit of the oldest file on disk
        self._synced_newest = -1  # first unit of the newest file synced so far; what follows it is not on disk yet

    # --- loading and cutting

    def load(self) -> bool:
        """Find the last live unit in the newest files and continue there (3.3). False when the files made no sense:
        they are removed then, and the queue has to be rebuilt from the log."""
        starts = self._scan_folder()
        if starts is None:
            self._drop_folder()
            return False
        if not starts:
            return True
        self.first_file = starts[0]
        chosen = max(0, len(starts) - RECOVERED_FILES)
        end = starts[chosen]
        for start in starts[chosen:]:
            live = count_live_units(self._map(start), self.per_file, self.unit_bytes)
            end = start + live
            if live < self.per_file:
                break
        self._settle(end)
        return True

    def _drop_folder(self) -> None:
        for name in self._files.list_files(self.folder):
            self._files.unlink(self.folder / name)

    def _scan_folder(self) -> list[int] | None:
        """First units of the files, oldest first; None when a name, a size or the order is wrong."""
        starts: list[int] = []
        names = self._files.list_files(self.folder)
        for name in names:
            path = self.folder / name
            if len(name) != NAME_DIGITS or not name.isdigit() or int(name) % self.file_bytes:
                return None
            size = self._files.size(path)
            if size == 0 and name == names[-1]:
                self._files.unlink(path)
                continue
            if size != self.file_bytes:
                return None
            if starts and int(name) // self.unit_bytes != starts[-1] + self.per_file:
                return None
            starts.append(int(name) // self.unit_bytes)
        return starts

    def _settle(self, end: int, next_offset: int | None = None) -> None:
        """`end` is the unit after the last live one: drop files beyond it, map the newest, clear its rest. next_offset:
        the queue offset that comes next, when units after it told."""
        newest = max(self.first_file, (end - 1) // self.per_file * self.per_file if end else 0)
        for start in self._starts():
            if start > newest:
                self._remove(start)
        self.units.drop_files()
        fd = self._files.open(self._path(newest))
        try:
            # Blocks of a half-used file may be missing (a crash, another program): reserve what may be written.
            reserved = self._reserve(fd, newest, end, end)
            used = (end - newest) * self.unit_bytes
            self._files.zero_tail(fd, used, (reserved - newest) * self.unit_bytes - used)
            mapped = self._files.map(fd, self.file_bytes)
        finally:
            self._files.close(fd)
        self._clear_after(newest, reserved)
        self.units.add_file(mapped, newest, reserved)
        end_physical = 0
        if end > self.first_file:
            physical, size, _ = unit_of(self._map(newest), end - 1 - newest, self.unit_bytes)
            end_physical = physical + size if size != 0x7FFFFFFF else 0
        if next_offset is None:
            next_offset = self._next_offset(end)
        self.units.place(self.first_file, end, end_physical, next_offset)

    def _clear_after(self, start: int, reserved: int) -> None:
        """Units left over beyond the reserved part would look live after a crash; drop them by resizing the file."""
        tail = (start + self.per_file - reserved) * self.unit_bytes
        if tail <= 0:
            return
        fd = self._files.open(self._path(start))
        try:
            self._files.set_size(fd, (reserved - start) * self.unit_bytes)
            self._files.set_size(fd, self.file_bytes)
        finally:
            self._files.close(fd)

    def cut(self, physical_offset: int) -> bool:
        """Drop units whose record starts or ends above `physical_offset`; True when there were any (5.7)."""
        end = self.units.next
        if self.units.end_physical <= physical_offset or end <= self.first_file:
            return False
        start = (end - 1) // self.per_file * self.per_file
        while True:
            count = min(end - start, self.per_file)
            # The last unit below the cut may still reach over it only when the cut is not at a record's edge.
            index = first_unit_from(self._map(start), count, physical_offset, self.unit_bytes)
            end = start + index
            if index > 0 or start <= self.first_file:
                break
            start -= self.per_file
        first = self.units.first
        self._settle(end, self.offset_of(end))
        self.units.set_first(min(max(first, self.first_file), self.units.next))
        return True

    # --- writing

    def reserve(self, planned: int) -> None:
        """Make units below `planned` writable: blocks of the newest file, or one more file. DiskFull."""
        units = self.units
        if units.file_count == 0:
            start = units.next // self.per_file * self.per_file
            self.first_file = start
            self._create(start, units.next)
        elif units.reserved_end >= units.last_file_first_unit + self.per_file:
            self._create(units.last_file_first_unit + self.per_file, units.reserved_end)
        else:
            start = units.last_file_first_unit
            fd = self._files.open(self._path(start))
            try:
                units.set_reserved(self._reserve(fd, start, units.reserved_end, min(planned, start + self.per_file)))
            finally:
                self._files.close(fd)

    def start_at(self, queue_offset: int) -> None:
        """Continue at a queue offset above the end (recovery): what is missing before it becomes filler units (3.2)."""
        units = self.units
        if units.file_count and queue_offset - units.next > GAP_UNITS_MAX_FILES * self.per_file:
            self.remove_files()
        if units.file_count == 0:
            start = queue_offset // self.per_file * self.per_file
            units.place(queue_offset, start, units.end_physical)
            if queue_offset == start:
                units.place(queue_offset, queue_offset, units.end_physical)
                return
        first = units.first
        while units.reserved_end < queue_offset or units.file_count == 0:
            self.reserve(queue_offset)
        units.put_fillers(units.next, queue_offset)
        units.place(first, queue_offset, units.end_physical)

    def trim(self, confirm: int) -> bool:
        """Unmap full files for the writer once all they hold is readable; True when only the newest is left."""
        self.units.readable_end(confirm)
        self.units.keep_newest()
        return self.units.file_count <= 1

    def _create(self, start: int, used: int) -> None:
        path = self._path(start)
        self._files.make_dirs(self.folder)
        fd = self._files.open(path, create=True)
        try:
            self._files.set_size(fd, self.file_bytes)
            reserved = self._reserve(fd, start, start, max(used, start))
            mapped = self._files.map(fd, self.file_bytes)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise
        finally:
            self._files.close(fd)
        self._files.reach("queue.created")
        self.units.add_file(mapped, start, reserved)

    def _reserve(self, fd: int, start: int, reserved: int, planned: int) -> int:
        """Reserve a chunk beyond `planned` of the file at `start`; returns the new reserved end."""
        end = min(max(planned, reserved) + self._settings.queue_reserve_units, start + self.per_file)
        if end > reserved:
            self._files.reserve(fd, (reserved - start) * self.unit_bytes, (end - reserved) * self.unit_bytes)
        return end

    def sync(self, *, done: bool = False) -> None:
        """Put the files written to since the last sync on disk; `done`: they are there already, only note it."""
        newest = self.units.last_file_first_unit
        if newest < 0:
            return
        if not done:
            start = max(self._synced_newest, self.first_file)
            while start <= newest:
                self._files.sync_path(self._path(start))
                start += self.per_file
            if newest != self._synced_newest:
                self._files.sync_dir(self.folder)
                # The folders above are new with the first file; afterwards this costs nothing.
                if self._synced_newest < 0:
                    self._files.sync_dir(self.folder.parent)
                    self._files.sync_dir(self.folder.parent.parent)
        self._synced_newest = newest

    # --- reading

    def offset_of(self, unit: int) -> int:
        """Queue offset of the first message of a unit; of the next message for the unit after the last."""
        return unit

    def unit_holding(self, queue_offset: int) -> int:
        """The unit of the message at a queue offset, or of the first one after it."""
        return queue_offset

    def _next_offset(self, end: int) -> int:
        """Queue offset after the last of the units below `end`, whose file is mapped."""
        return end

    def file_at(self, unit: int) -> tuple[MappedFile, int]:
        """(mapped file, its first unit) holding a unit between first_file and next."""
        found = self.units.mapped_at(unit)
        if found is not None:
            return found
        start = unit // self.per_file * self.per_file
        return self._map(start), start

    def unit(self, unit: int) -> tuple[int, int, int]:
        """(physical offset, size, tag code)."""
        mapped, start = self.file_at(unit)
        return unit_of(mapped, unit - start, self.unit_bytes)

    # --- expiring

    def correct_first(self, log_start: int) -> None:
        """Smallest readable offset, given where the log starts now (3.4)."""
        units = self.units
        if units.next <= self.first_file or units.file_count == 0:
            return
        if units.end_physical <= log_start:
            units.set_first(units.next)
            return
        if units.first < units.next and units.first >= self.first_file:
            physical, size, _ = self.unit(units.first)
            if physical >= log_start and size != 0x7FFFFFFF:
                return
        start = self.first_file
        while start < units.next:
            count = min(units.next - start, self.per_file)
            index = first_unit_from(self.file_at(start)[0], count, log_start, self.unit_bytes)
            if index < count:
                units.set_first(start + index)
                return
            start += self.per_file
        units.set_first(units.next)

    def expire(self, log_start: int) -> int:
        """Remove leading files whose last unit lies below the log; never the last file. Returns how many went."""
        removed = 0
        newest = self.units.last_file_first_unit
        while self.first_file < newest:
            physical, size, _ = self.unit(self.first_file + self.per_file - 1)
            if physical >= log_start and size != 0x7FFFFFFF:
                break
            self._remove(self.first_file)
            self.first_file += self.per_file
            removed += 1
        return removed

    def remove_files(self) -> None:
        """All files and the folder go."""
        self.units.drop_files()
        for start in self._starts():
            self._remove(start)
            self._files.reach("delete_topic.unlinked")
        if self._files.exists(self.folder):
            with contextlib.suppress(OSError):
                self._files.rmdir(self.folder)

    def _starts(self) -> list[int]:
        return [int(name) // self.unit_bytes for name in self._files.list_files(self.folder)]

    def _remove(self, start: int) -> None:
        path = self._path(start)
        self._old.forget(path)
        self._files.unlink(path)

    def _path(self, start: int) -> Path:
        return self.folder / file_name(start * self.unit_bytes)

    def _map(self, start: int) -> MappedFile:
        return self._old.get(self._files, self._path(start), self.file_bytes)
