"""A whole store as plain lists: what razzo.storage must have on disk and answer after the same calls.

The twin keeps every record it ever took, renders the files from scratch each time it is asked, and answers reads by walking
lists. It has no files, no threads and no recovery: a kill -9 or a reopen changes nothing in it, only `truncate` and
`retain_from` do.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from twin.key_index import KeyIndex
from twin.queues import Unit, file_name, queue_files
from twin.records import (
    BLANK_BYTES,
    Record,
    blank,
    decode,
    encode,
    gets_unit,
    index_keys,
    tag_code,
)


class Message(NamedTuple):
    """The same nine facts as razzo.storage.NewMessage, spelled out here so that the twin imports nothing of the product."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    sys_flag: int = 0
    flag: int = 0
    born_ms: int = 0
    born_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_offset: int = 0


@dataclass
class Queue:
    """Units in queue order; `first` is the queue offset of units[0]. Apache never reuses an offset, nor do we."""

    first: int = 0
    units: list[Unit] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.units)


@dataclass
class TwinStore:
    """Sizes as in StoreSettings. `base` is where the first commit-log file starts."""

    file_bytes: int
    queue_file_units: int
    index_slots: int
    index_units: int
    store_host: bytes
    crc_property: bool = False
    base: int = 0
    records: list[Record] = field(default_factory=list)
    queues: dict[tuple[str, int], Queue] = field(default_factory=dict)
    end: int = 0

    def append(self, batch: list[Message], store_ms: int) -> list[Record]:
        return [self._append_one(message, store_ms) for message in batch]

    def _append_one(self, message: Message, store_ms: int) -> Record:
        key = (message.topic, message.queue_id)
        placed = gets_unit(message.sys_flag)
        queue_offset = self.queues.setdefault(key, Queue()).end if placed else 0
        draft = Record(message.topic, message.queue_id, message.body, message.properties, queue_offset, 0, store_ms,
                       self.store_host, message.sys_flag, message.flag, message.born_ms, message.born_host,
                       message.reconsume_times, message.prepared_offset)  # fmt: skip
        size = len(encode(draft, self.crc_property))
        left = self.file_bytes - self.end % self.file_bytes
        if size + BLANK_BYTES > left:
            self.end += left
        data = encode(Record(**{**vars(draft), "physical_offset": self.end}), self.crc_property)
        record = decode(data, 0)
        self.records.append(record)
        if placed:
            self.queues[key].units.append(Unit(record.physical_offset, record.size, tag_code(record)))
        self.end += record.size
        return record

    # -- what must be on disk ------------------------------------------------------------------------------------------

    def log_files(self) -> dict[str, bytes]:
        """Every commit-log file that holds a record or a marker; a preallocated empty one is not listed."""
        files: dict[int, bytearray] = {}
        for record in self.records:
            start = record.physical_offset - record.physical_offset % self.file_bytes
            data = files.setdefault(start, bytearray(self.file_bytes))
            at = record.physical_offset - start
            data[at : at + record.size] = encode(record, False) if not self.crc_property else self._with_crc(record)
        starts = sorted(files)
        for start in starts:
            last = max((r for r in self.records if start <= r.physical_offset < start + self.file_bytes),
                       key=lambda r: r.physical_offset)  # fmt: skip
            used = last.physical_offset + last.size - start
            if self.end >= start + self.file_bytes and used < self.file_bytes:
                files[start][used : used + BLANK_BYTES] = blank(self.file_bytes - used)
        return {file_name(start): bytes(files[start]) for start in starts}

    def _with_crc(self, record: Record) -> bytes:
        """Encoded again from the properties as they were before the twenty bytes of the CRC were added."""
        bare = Record(**{**vars(record), "properties": record.properties[:-20]})
        return encode(bare, True)

    def queue_files(self) -> dict[tuple[str, int], dict[str, bytes]]:
        return {
            key: queue_files(queue.first, queue.units, self.queue_file_units)
            for key, queue in self.queues.items()
            if queue.units
        }

    def index(self) -> KeyIndex:
        index = KeyIndex(self.index_slots, self.index_units)
        for record in self.records:
            index.put(record)
        return index

    # -- what must be answered -----------------------------------------------------------------------------------------

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self.queues.get((topic, queue_id))
        return (queue.first, queue.end) if queue else (0, 0)

    def record_at(self, physical_offset: int) -> Record | None:
        return next((r for r in self.records if r.physical_offset == physical_offset), None)

    def in_queue(self, topic: str, queue_id: int) -> list[Record]:
        """The readable records of a queue, in order."""
        wanted = [r for r in self.records if (r.topic, r.queue_id) == (topic, queue_id) and gets_unit(r.sys_flag)]
        return sorted(wanted, key=lambda record: record.queue_offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        """3.9: an exact hit goes to the first (lower) or last (upper) equal stamp; else the newer or the older neighbour."""
        low, high = self.queue_range(topic, queue_id)
        records = self.in_queue(topic, queue_id)
        if upper:
            older = [r.queue_offset for r in records if r.store_ms <= timestamp_ms]
            answer = older[-1] if older else 0
        else:
            newer = [r.queue_offset for r in records if r.store_ms >= timestamp_ms]
            answer = newer[0] if newer else high
        return max(low, min(high, answer))

    def by_key(self, topic: str, key: str) -> list[Record]:
        return [record for record in self.records if f"{topic}#{key}" in index_keys(record)]

    # -- what changes the past -----------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Everything from `offset` on is gone. The end stays at the last record's end or at the file boundary given."""
        self.records = [r for r in self.records if r.physical_offset + r.size <= offset]
        for queue in self.queues.values():
            queue.units = [unit for unit in queue.units if unit.physical_offset + unit.size <= offset]
        self.end = offset

    def retain_from(self, base: int) -> None:
        """Log files below `base` are gone: their records are unreadable and every queue's minimum moves up."""
        self.base = base
        self.records = [r for r in self.records if r.physical_offset >= base]
        for queue in self.queues.values():
            kept = [unit for unit in queue.units if unit.physical_offset >= base]
            queue.first += len(queue.units) - len(kept)
            queue.units = kept

    def record_bounds(self) -> list[int]:
        """Every offset at which a record starts, and the end."""
        return [*(r.physical_offset for r in self.records), self.end]
