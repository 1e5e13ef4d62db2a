"""Index files: header, slots, chained units (store-and-semantics.md 4.1-4.3), and the checkpoint page (5.1)."""

import struct
from dataclasses import dataclass, field

from twin.records import Record, index_keys, java_hash

HEADER_BYTES = 40
UNIT_BYTES = 20
CHECKPOINT_BYTES = 4096


def key_hash(key: str) -> int:
    value = abs(java_hash(key))
    return 0 if value == 1 << 31 else value


@dataclass
class IndexFile:
    """One index file in memory. `units[0]` is never used, as in the format."""

    slots_max: int
    units_max: int
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots: dict[int, int] = field(default_factory=dict)
    units: list[tuple[int, int, int, int]] = field(default_factory=lambda: [(0, 0, 0, 0)])

    def is_full(self) -> bool:
        return len(self.units) >= self.units_max

    def put(self, key: str, physical_offset: int, store_ms: int) -> None:
        hash_value = key_hash(key)
        slot = hash_value % self.slots_max
        first = len(self.units) == 1
        seconds = 0 if self.begin_ms <= 0 else max(0, min((store_ms - self.begin_ms) // 1000, 0x7FFFFFFF))
        self.units.append((hash_value, physical_offset, seconds, self.slots.get(slot, 0)))
        self.slots[slot] = len(self.units) - 1
        if first:
            self.begin_ms, self.begin_offset = store_ms, physical_offset
        self.end_ms, self.end_offset = store_ms, physical_offset

    def header(self) -> bytes:
        return struct.pack(">qqqqii", self.begin_ms, self.end_ms, self.begin_offset, self.end_offset,
                           len(self.slots), len(self.units))  # fmt: skip

    def encode(self) -> bytes:
        data = bytearray(HEADER_BYTES + 4 * self.slots_max + UNIT_BYTES * self.units_max)
        data[:HEADER_BYTES] = self.header()
        for slot, number in self.slots.items():
            struct.pack_into(">i", data, HEADER_BYTES + 4 * slot, number)
        for number, unit in enumerate(self.units):
            struct.pack_into(">iqii", data, HEADER_BYTES + 4 * self.slots_max + UNIT_BYTES * number, *unit)
        return bytes(data)


@dataclass
class KeyIndex:
    """All index files, oldest first."""

    slots_max: int
    units_max: int
    files: list[IndexFile] = field(default_factory=list)

    def put(self, record: Record) -> None:
        for key in index_keys(record):
            if not self.files or self.files[-1].is_full():
                self.files.append(self._next_file())
            self.files[-1].put(key, record.physical_offset, record.store_ms)

    def _next_file(self) -> IndexFile:
        """A new file's clock starts at its own first entry.

        Apache presets the old file's end values, which skews the first unit's time; note 4.2 says not to copy that.
        """
        return IndexFile(self.slots_max, self.units_max)


def encode_checkpoint(physic_ms: int, logics_ms: int, index_ms: int = 0, master: int = 0, confirm: int = 0) -> bytes:
    return struct.pack(">qqqqq", physic_ms, logics_ms, index_ms, master, confirm).ljust(CHECKPOINT_BYTES, b"\0")
