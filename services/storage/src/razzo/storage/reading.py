"""The reading half of the store's face, for any thread. Nothing here changes the store."""

from collections.abc import Sequence

from razzo.storage import lookup
from razzo.storage._kernel import LogWriter, StoredMessage
from razzo.storage.commit_log import CommitLog
from razzo.storage.flusher import LogFlusher
from razzo.storage.key_index import KeyIndex
from razzo.storage.messages import ReadResult
from razzo.storage.queue_table import QueueTable
from razzo.storage.settings import FlushMode, StoreSettings


class Reading:
    """What can be asked of a store whose parts are in place."""

    settings: StoreSettings
    _writer: LogWriter
    _queues: QueueTable
    _log: CommitLog
    _index: KeyIndex
    _flusher: LogFlusher

    @property
    def max_physical_offset(self) -> int:
        """Where the next record goes, but for an end-of-file marker."""
        return self._writer.end_physical

    @property
    def min_physical_offset(self) -> int:
        return self._log.min_offset

    @property
    def flushed_offset(self) -> int:
        return self._flusher.flushed

    @property
    def confirm_offset(self) -> int:
        """Readers see records that end at or below it. SYNC: on disk; ASYNC: written."""
        return self._flusher.flushed if self.settings.flush_mode is FlushMode.SYNC else self._writer.end_physical

    def topics(self) -> list[str]:
        """Topics something was appended to."""
        return self._queues.topics()

    def queue_ids(self, topic: str) -> list[int]:
        return self._queues.ids(topic)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) of readable queue offsets, max exclusive; (0, 0) when the queue does not exist."""
        queue = self._queues.get(topic, queue_id)
        return (0, 0) if queue is None else lookup.readable_range(queue, self.confirm_offset)

    def read(self, topic: str, queue_id: int, offset: int, max_count: int = 32, max_bytes: int = 256 << 10,
             tag_hashes: frozenset[int] | None = None) -> ReadResult:  # fmt: skip
        """Messages of one queue from `offset` on; only those whose tag code is in tag_hashes, when given (3.8)."""
        max_count = min(max_count, self.settings.read_messages_max)
        max_bytes = min(max_bytes, self.settings.read_bytes_max)
        return lookup.read(self._queues.get(topic, queue_id), self._log, self.confirm_offset, offset, max_count,
        max_bytes,
                           tag_hashes, self.settings.scan_units_max)  # fmt: skip

    def read_offsets(self, topic: str, queue_id: int, offsets: Sequence[int]) -> list[StoredMessage | None]:
        """Single messages of one queue; None where there is none any more or not yet."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return [None] * len(offsets)
        return lookup.read_offsets(queue, self._log, self.confirm_offset, offsets)

    def read_at(self, physical_offset: int) -> StoredMessage | None:
        """The record that begins at a physical offset."""
        return self._log.read_at(physical_offset, self.confirm_offset)

    def units(self, topic: str, queue_id: int, offset: int, max_count: int) -> list[tuple[int, int, int]]:
        """(physical offset, size, tag code) of at most max_count queue offsets from `offset` on."""
        queue = self._queues.get(topic, queue_id)
        return [] if queue is None else lookup.units(queue, self.confirm_offset, offset, max_count)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """Queue offset of the first message stored at or after a time (upper: the last one at or before), clamped
        (3.9)."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        return lookup.offset_by_time(queue, self._log, self.confirm_offset, timestamp_ms, upper)

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[StoredMessage]:
        """The newest max_count messages of a topic that carry a key and were stored in [begin_ms, end_ms], oldest
        first."""
        if not self.settings.index_enabled:
            return []
        limit = min(max_count, self.settings.query_max)
        return lookup.query_by_key(self._index, self._log, self.confirm_offset, self._queues.deleted_below(topic),
        topic, key,
                                   limit, begin_ms, end_ms)  # fmt: skip

    def tail(self, physical_offset: int, max_bytes: int, until: int | None = None) -> bytes:
        """Raw whole records from a record's start, at most max_bytes but at least one record, none that ends above
        `until` (default: the confirm offset). Empty at the end; at an end-of-file marker the records of the next file
        (each record holds its own physical offset). ValueError when no record begins there."""
        return self._log.tail(physical_offset, max_bytes, self.confirm_offset if until is None else until)
