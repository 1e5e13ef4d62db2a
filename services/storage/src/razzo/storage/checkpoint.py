"""The `checkpoint` page (section 5.1): five big-endian longs in 4096 bytes, overwritten in place.

The fields lie in one disk sector, which a disk writes whole or not at all; a file of another size or with negative fields
counts as absent (all zeros), which only makes recovery look at more of the log.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from razzo.storage.files import FileLayer

PAGE_BYTES = 4096
FIELDS = struct.Struct(">5q")
CLOCK_MARGIN_MS = 3_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """log_ms: store time of the last record on disk; queues_ms: of the last record whose units are; index_ms: index files
    ending at or before it are whole; flushed: bytes of the log known to be on disk (RocketMQ's confirmPhyOffset)."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    master_flushed: int = 0
    flushed: int = 0

    @property
    def replay_from_ms(self) -> int:
        """Store time below which nothing needs to be dispatched again."""
        return max(0, min(self.log_ms, self.queues_ms) - CLOCK_MARGIN_MS)

    def encode(self) -> bytes:
        packed = FIELDS.pack(self.log_ms, self.queues_ms, self.index_ms, self.master_flushed, self.flushed)
        return packed.ljust(PAGE_BYTES, b"\0")

    @classmethod
    def decode(cls, page: bytes) -> "Checkpoint":
        if len(page) != PAGE_BYTES:
            return cls()
        values = FIELDS.unpack_from(page)
        return cls(*values) if min(values) >= 0 else cls()


class CheckpointFile:
    """Reads once at open, writes only when something changed."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self._path = path
        self._files = files
        self.value = Checkpoint()

    def load(self) -> Checkpoint:
        self.value = Checkpoint.decode(self._files.read(self._path)) if self._files.exists(self._path) else Checkpoint()
        return self.value

    def save(self, value: Checkpoint) -> None:
        """Durable when it returns."""
        if value == self.value and self._files.exists(self._path):
            return
        created = not self._files.exists(self._path)
        fd = self._files.open(self._path, create=True)
        try:
            self._files.pwrite(fd, value.encode(), 0)
            self._files.sync_data(fd)
        finally:
            self._files.close(fd)
        if created:
            self._files.sync_dir(self._path.parent)
        self.value = value
        self._files.reach("checkpoint.written")
