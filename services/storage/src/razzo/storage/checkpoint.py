"""The `checkpoint` page (section 5.1): five big-endian longs in 4096 bytes, overwritten in place.

Behind them, in bytes RocketMQ neither reads nor writes, stand the number of index files at a clean stop and a CRC-32 of
everything before it. All lie in one disk sector, which a disk writes whole or not at all. A page whose CRC does not fit
was damaged or written by RocketMQ and counts as absent (all zeros): recovery then looks at the whole log, and nothing
is lost.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from razzo.storage._kernel import crc32
from razzo.storage.files import FileLayer

PAGE_BYTES = 4096
FIELDS = struct.Struct(">5qi")
CRC = struct.Struct(">I")
CLOCK_MARGIN_MS = 3_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """log_ms: store time of the last record on disk; queues_ms: of the last record whose units are; index_ms: index
    files ending at or before it are whole; flushed: bytes of the log known to be on disk (RocketMQ's confirmPhyOffset);
    index_files: how many index files hold every key of the log, -1 while the store is open."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    master_flushed: int = 0
    flushed: int = 0
    index_files: int = -1

    @property
    def replay_from_ms(self) -> int:
        """Store time below which nothing needs to be dispatched again."""
        return max(0, min(self.log_ms, self.queues_ms) - CLOCK_MARGIN_MS)

    def encode(self) -> bytes:
        packed = FIELDS.pack(
            self.log_ms, self.queues_ms, self.index_ms, self.master_flushed, self.flushed, self.index_files
        )
        return (packed + CRC.pack(crc32(packed))).ljust(PAGE_BYTES, b"\0")

    @classmethod
    def decode(cls, page: bytes) -> "Checkpoint":
        if len(page) != PAGE_BYTES or CRC.unpack_from(page, FIELDS.size)[0] != crc32(page[: FIELDS.size]):
            return cls()
        return cls(*FIELDS.unpack_from(page))


class CheckpointFile:
    """Reads once at open, writes only when something changed."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self._path = path
        self.folder = path.parent
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
