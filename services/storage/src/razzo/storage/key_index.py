"""Index files on disk: slots, units and chains that find records by topic and key (section 4)."""

import contextlib
import re
import time
from pathlib import Path

from razzo.storage._kernel import LogWriter, MappedFile, index_header, index_key_hash, index_lookup
from razzo.storage.files import FileLayer
from razzo.storage.settings import INDEX_HEADER_BYTES, SLOT_BYTES, UNIT_BYTES, StoreSettings

NAME = re.compile(r"\d{17}")


class IndexFile:
    """`name` is the local time of creation, yyyyMMddHHmmssSSS. The header is read from the mapping each time."""

    __slots__ = ("mapped", "name", "path", "reserved_count", "synced_full")

    def __init__(self, path: Path, mapped: MappedFile, reserved_count: int) -> None:
        self.path = path
        self.name = path.name
        self.mapped = mapped
        self.reserved_count = reserved_count
        self.synced_full = False

    @property
    def begin_ms(self) -> int:
        return index_header(self.mapped)[0]

    @property
    def end_ms(self) -> int:
        return index_header(self.mapped)[1]

    @property
    def end_physical(self) -> int:
        return index_header(self.mapped)[3]

    @property
    def count(self) -> int:
        return index_header(self.mapped)[5]


class KeyIndex:
    """The list of index files, oldest first; the kernel writes to the newest through LogWriter."""

    def __init__(self, folder: Path, settings: StoreSettings, files: FileLayer, writer: LogWriter) -> None:
        self.folder = folder
        self.index_files: list[IndexFile] = []
        self._settings = settings
        self._files = files
        self._writer = writer

    # --- loading

    def load(self, clean: bool, trusted_ms: int) -> None:
        """Map the files. A file of another size than configured goes, with those after it. After a crash only full
        files that were synced whole are kept, those that end at or before `trusted_ms` (the checkpoint's index time): a
        half-written one cannot be told from a whole one (4.4)."""
        names = [name for name in self._files.list_files(self.folder) if NAME.fullmatch(name)]
        keep = True
        for name in names:
            path = self.folder / name
            size = self._files.size(path)
            keep = keep and size == self._settings.index_file_bytes
            if not keep:
                self._files.unlink(path)
                continue
            mapped = self._map(path)
            _, end_ms, _, _, _, count = index_header(mapped)
            keep = clean or (count >= self._settings.index_units and end_ms <= trusted_ms)
            if keep:
                self.index_files = [*self.index_files, IndexFile(path, mapped, self._settings.index_units)]
            else:
                self._files.unlink(path)
        if self.index_files:
            self._resume(self.index_files[-1])

    def _resume(self, newest: IndexFile) -> None:
        newest.synced_full = newest.count >= self._settings.index_units
        newest.reserved_count = min(max(newest.count, 1), self._settings.index_units)
        for older in self.index_files[:-1]:
            older.synced_full = True
        self._writer.indexes.add(newest.mapped, self._settings.index_slots, newest.reserved_count)

    # --- writing

    def reserve(self, entries: int) -> None:
        """Room for `entries` more: blocks of the newest file, then new files. DiskFull."""
        room, _, _ = self._writer.indexes.room()
        while room < entries:
            newest = self.index_files[-1] if self.index_files else None
            if newest is None or newest.reserved_count >= self._settings.index_units:
                self._create()
            else:
                wanted = newest.reserved_count + max(self._settings.index_reserve_units, entries - room)
                self._reserve_units(newest, min(wanted, self._settings.index_units))
                self._writer.indexes.set_reserved(newest.reserved_count)
            room, _, _ = self._writer.indexes.room()

    def trim(self) -> None:
        self._writer.indexes.keep_newest()

    def _create(self) -> None:
        self._files.make_dirs(self.folder)
        path = self._free_name()
        fd = self._files.open(path, create=True, exclusive=True)
        try:
            self._files.set_size(fd, self._settings.index_file_bytes)
            self._files.reserve(fd, 0, INDEX_HEADER_BYTES + SLOT_BYTES * self._settings.index_slots)
            count = min(self._settings.index_reserve_units, self._settings.index_units)
            self._files.reserve(fd, self._unit_byte(0), UNIT_BYTES * count)
            mapped = self._files.map(fd, self._settings.index_file_bytes)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise
        finally:
            self._files.close(fd)
        self._files.reach("index.created")
        self.index_files = [*self.index_files, IndexFile(path, mapped, count)]
        self._writer.indexes.add(mapped, self._settings.index_slots, count)

    def _free_name(self) -> Path:
        """Now as a name, moved on by milliseconds until it is above every existing one."""
        now = time.time()
        while True:
            name = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03d}"
            if not self.index_files or name > self.index_files[-1].name:
                return self.folder / name
            now += 0.001

    def _reserve_units(self, file: IndexFile, count: int) -> None:
        fd = self._files.open(file.path)
        try:
            at = self._unit_byte(file.reserved_count)
            self._files.reserve(fd, at, UNIT_BYTES * (count - file.reserved_count))
        finally:
            self._files.close(fd)
        file.reserved_count = count

    def _unit_byte(self, number: int) -> int:
        return INDEX_HEADER_BYTES + SLOT_BYTES * self._settings.index_slots + UNIT_BYTES * number

    def _map(self, path: Path) -> MappedFile:
        fd = self._files.open(path)
        try:
            return self._files.map(fd, self._settings.index_file_bytes)
        finally:
            self._files.close(fd)

    # --- flushing

    def sync_full(self) -> int:
        """Put files that will not change any more on disk; returns the end time up to which the index can be trusted
        after a crash (0: no full file)."""
        trusted = 0
        for file in self.index_files:
            if file.count < self._settings.index_units:
                break
            if not file.synced_full:
                self._files.sync_path(file.path)
                self._files.sync_dir(self.folder)
                file.synced_full = True
            trusted = file.end_ms
        return trusted

    def sync_all(self) -> None:
        for file in self.index_files:
            if not file.synced_full:
                self._files.sync_path(file.path)
        if self.index_files:
            self._files.sync_dir(self.folder)

    # --- reading

    def lookup(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets of records whose key hash fits, newest file first, each once (4.3)."""
        hash_value = index_key_hash(topic, key)
        found: dict[int, None] = {}
        for file in reversed(self.index_files):
            if len(found) >= limit:
                break
            file_begin = file.begin_ms
            if file_begin <= end_ms and file.end_ms >= begin_ms:
                hits = index_lookup(file.mapped, self._settings.index_slots, hash_value, begin_ms - 999, end_ms, limit)
                found.update(dict.fromkeys(hits))
            if file_begin < begin_ms:
                break
        return list(found)[:limit]

    # --- expiring and cutting

    def expire(self, log_start: int) -> int:
        """Remove leading files that end below the log; never the last one. Returns how many went."""
        removed = 0
        while len(self.index_files) > 1 and self.index_files[0].end_physical < log_start:
            self._files.unlink(self.index_files[0].path)
            self.index_files = self.index_files[1:]
            removed += 1
        return removed

    def cut(self, physical_offset: int) -> int:
        """Drop files with entries at or above an offset; returns the offset from which records must be indexed
        again."""
        self._writer.indexes.drop()
        while self.index_files and self.index_files[-1].end_physical >= physical_offset:
            self._files.unlink(self.index_files[-1].path)
            self.index_files = self.index_files[:-1]
        if not self.index_files:
            return 0
        self._resume(self.index_files[-1])
        return self.index_files[-1].end_physical

    def close(self) -> None:
        self._writer.indexes.drop()
        self.index_files = []
