"""A whole store as plain lists: what razzo.storage must have on disk and answer after the same calls.

The twin keeps every record it ever took, renders the files from scratch each time it is asked, and answers reads by
walking lists. It has no files, no threads and no recovery: a kill -9 or a reopening changes nothing in it, only
`truncate`, `drop_topic` and `retain_from` do.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from twin.key_index import KeyIndex
from twin.queues import Unit, file_name, queue_files
from twin.records import (
    BLANK_BYTES,
    CRC_PROPERTY_BYTES,
    Record,
    blank,
    decode,
    encode,
    gets_unit,
    index_keys,
    java_hash,
    tag_code,
)


class Message(NamedTuple):
    """The same facts as razzo.storage.NewMessage, spelled out here so that the twin imports nothing of the product."""

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


class Read(NamedTuple):
    """What a read answers (store-and-semantics.md 3.8): the status's name, where to go on, and the records."""

    status: str
    next_offset: int
    records: list[Record]


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
    """Sizes as in StoreSettings. `base` is where the first commit-log file starts, `end` where the next record goes."""

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
    dropped: dict[str, int] = field(default_factory=dict)
    """Topic -> the log's end when it was last deleted: records below belong to no topic any more."""

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
        record = decode(encode(replace(draft, physical_offset=self.end), self.crc_property), 0)
        self.records.append(record)
        if placed:
            self.queues[key].units.append(Unit(record.physical_offset, record.size, tag_code(record)))
        self.end += record.size
        return record

    # -- what must be on disk -----------------------------------------------------------------------------------------

    def log_pieces(self) -> list[tuple[int, bytes]]:
        """(physical offset, bytes) of everything the log's writer wrote: records, and the marker of each full file."""
        pieces = []
        starts = [*(record.physical_offset for record in self.records), self.end]
        for record, following in zip(self.records, starts[1:], strict=True):
            pieces.append((record.physical_offset, self.bytes_of(record)))
            used = record.physical_offset + record.size
            if following > used:
                pieces.append((used, blank(self.file_bytes - used % self.file_bytes)))
        return pieces

    def bytes_of(self, record: Record) -> bytes:
        """The stored bytes; with a CRC property, from the properties as they were before its twenty bytes."""
        if not self.crc_property:
            return encode(record)
        return encode(replace(record, properties=record.properties[:-CRC_PROPERTY_BYTES]), True)

    def log_files(self) -> dict[str, bytes]:
        """Every commit-log file that holds a record or a marker; a preallocated empty one is not listed."""
        files: dict[int, bytearray] = {}
        for offset, data in self.log_pieces():
            at = offset % self.file_bytes
            files.setdefault(offset - at, bytearray(self.file_bytes))[at : at + len(data)] = data
        return {file_name(start): bytes(files[start]) for start in sorted(files)}

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

    # -- what must be answered ----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted({topic for (topic, _), queue in self.queues.items() if queue.end})

    def queue_ids(self, topic: str) -> list[int]:
        return sorted(number for (name, number), queue in self.queues.items() if name == topic and queue.end)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self.queues.get((topic, queue_id))
        return (queue.first, queue.end) if queue else (0, 0)

    def in_queue(self, topic: str, queue_id: int) -> list[Record]:
        """The readable records of a queue, in order: one for each unit."""
        by_place = {record.physical_offset: record for record in self.records}
        queue = self.queues.get((topic, queue_id), Queue())
        return [by_place[unit.physical_offset] for unit in queue.units]

    def read(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, tags: frozenset[int] | None = None
    ) -> Read:
        """The longest answer a read may give. A unit matches when its tag code is among `tags`; None matches all."""
        low, high = self.queue_range(topic, queue_id)
        if (topic, queue_id) not in self.queues:
            return Read("NO_MATCHED_LOGIC_QUEUE", 0, [])
        if high == 0:
            return Read("NO_MESSAGE_IN_QUEUE", 0, [])
        if offset < low:
            return Read("OFFSET_TOO_SMALL", low, [])
        if offset >= high:
            return Read("OFFSET_OVERFLOW_ONE" if offset == high else "OFFSET_OVERFLOW_BADLY", high, [])
        taken: list[Record] = []
        for record in self.in_queue(topic, queue_id)[offset - low :]:
            if tags is not None and tag_code(record) not in tags:
                continue
            if taken and (len(taken) >= count or sum(r.size for r in taken) + record.size > size):
                return Read("FOUND", record.queue_offset, taken)
            taken.append(record)
        return Read("FOUND" if taken else "NO_MATCHED_MESSAGE", high, taken)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        """3.9: a hit goes to the first (lower) or last (upper) equal stamp, a miss to the newer or older neighbour."""
        low, high = self.queue_range(topic, queue_id)
        records = self.in_queue(topic, queue_id)
        offsets = range(low, high)
        if upper:
            older = [at for at, record in zip(offsets, records, strict=True) if record.store_ms <= timestamp_ms]
            answer = older[-1] if older else 0
        else:
            newer = [at for at, record in zip(offsets, records, strict=True) if record.store_ms >= timestamp_ms]
            answer = newer[0] if newer else high
        return max(low, min(high, answer))

    def by_key(self, topic: str, key: str) -> list[Record]:
        """Records that carry this key in this topic, newest first."""
        alive = [r for r in reversed(self.records) if r.physical_offset >= self.dropped.get(topic, 0)]
        return [record for record in alive if f"{topic}#{key}" in index_keys(record)]

    def tags_of(self, *tags: str) -> frozenset[int]:
        return frozenset(java_hash(tag) for tag in tags)

    # -- what changes the past ----------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Everything from `offset` on is gone, and the next record goes there."""
        self.records = [r for r in self.records if r.physical_offset + r.size <= offset]
        self.dropped = {topic: min(below, offset) for topic, below in self.dropped.items()}
        for queue in self.queues.values():
            queue.units = [unit for unit in queue.units if unit.physical_offset + unit.size <= offset]
        self.end = offset

    def drop_topic(self, topic: str) -> None:
        """The topic's queues are gone; its records stay in the log, where no queue leads to them."""
        if topic in self.topics():
            self.dropped[topic] = self.end
        self.queues = {key: queue for key, queue in self.queues.items() if key[0] != topic}

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
