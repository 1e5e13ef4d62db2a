"""Finding messages: by queue offset, by time, by key (sections 3.8, 3.9, 4.3). Functions over a queue and the log, for
any thread; nothing here changes the store."""

from collections.abc import Sequence

from razzo.storage._kernel import StoredMessage, collect, units_of
from razzo.storage.commit_log import CommitLog
from razzo.storage.consume_queue import ConsumeQueue
from razzo.storage.key_index import KeyIndex
from razzo.storage.messages import ReadResult, ReadStatus

FILLER_SIZE = 0x7FFFFFFF


def readable_units(queue: ConsumeQueue, confirm: int) -> tuple[int, int]:
    end = queue.units.readable_end(confirm)
    return min(queue.units.first, end), end


def readable_range(queue: ConsumeQueue, confirm: int) -> tuple[int, int]:
    """The same in queue offsets."""
    first, end = readable_units(queue, confirm)
    return queue.offset_of(first), queue.offset_of(end)


def read(queue: ConsumeQueue | None, log: CommitLog, confirm: int, offset: int, max_count: int, max_bytes: int,
         tag_hashes: frozenset[int] | None, scan_units_max: int) -> ReadResult:  # fmt: skip
    """The status table of 3.8."""
    if queue is None:
        return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, [])
    first_unit, end_unit = readable_units(queue, confirm)
    first, end = queue.offset_of(first_unit), queue.offset_of(end_unit)
    if end == 0:
        return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, [])
    if offset < first:
        return ReadResult(ReadStatus.OFFSET_TOO_SMALL, first, [])
    if offset == end:
        return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, offset, [])
    if offset > end:
        return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, end, [])
    view = log.view
    found: list[StoredMessage] = []
    at, taken, removed, stopped = queue.unit_holding(offset), 0, 0, max_count <= 0
    last = min(end_unit, at + scan_units_max)
    while at < last and not stopped:
        try:
            mapped, start = queue.file_at(at)
        except FileNotFoundError:
            if found:
                break
            following = queue.offset_of(min((at // queue.per_file + 1) * queue.per_file, end_unit))
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, following, [])
        stop = min(last, start + queue.per_file)
        at, taken, gone, stopped = collect(mapped, queue.unit_bytes, start, at, stop, max_count, max_bytes, taken,
                                           tag_hashes, view.maps, view.start, log.file_bytes, queue.topic,
                                           found)  # fmt: skip
        removed += gone
    next_offset = max(offset, queue.offset_of(at))
    if found:
        return ReadResult(ReadStatus.FOUND, next_offset, found, removed)
    status = ReadStatus.MESSAGE_WAS_REMOVING if removed else ReadStatus.NO_MATCHED_MESSAGE
    return ReadResult(status, next_offset, [], removed)


def read_offsets(
    queue: ConsumeQueue, log: CommitLog, confirm: int, offsets: Sequence[int]
) -> list[StoredMessage | None]:
    """One entry for each offset, None where nothing can be read."""
    first, end = readable_range(queue, confirm)
    found: list[StoredMessage | None] = []
    for offset in offsets:
        message = None
        if first <= offset < end:
            try:
                unit = queue.unit_holding(offset)
                physical, size, _ = queue.unit(unit)
                if queue.offset_of(unit) > offset:
                    size = 0
            except FileNotFoundError:
                size = 0
            if 0 < size < FILLER_SIZE:
                message = log.read_at(physical, confirm)
        found.append(message)
    return found


def units(queue: ConsumeQueue, confirm: int, offset: int, max_count: int) -> list[tuple[int, int, int]]:
    first, end = readable_units(queue, confirm)
    at = max(queue.unit_holding(offset), first)
    last = min(end, at + max_count)
    found: list[tuple[int, int, int]] = []
    while at < last:
        mapped, start = queue.file_at(at)
        stop = min(last, start + queue.per_file)
        found += units_of(mapped, at - start, stop - at, queue.unit_bytes)
        at = stop
    return found


def offset_by_time(queue: ConsumeQueue, log: CommitLog, confirm: int, timestamp_ms: int, upper: bool) -> int:
    """Binary search over store times, which never fall within a log.

    LOWER: first message stored at or after the time; all older: the end. UPPER: last message stored at or before it;
    all newer: the beginning.
    """
    first, end = readable_units(queue, confirm)
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        physical, _, _ = queue.unit(middle)
        stored_ms = log.store_time(physical)
        if stored_ms < timestamp_ms or (upper and stored_ms == timestamp_ms):
            low = middle + 1
        else:
            high = middle
    return queue.offset_of(max(first, low - 1) if upper else low)


def query_by_key(index: KeyIndex, log: CommitLog, confirm: int, at_least: int, topic: str, key: str, limit: int,
                 begin_ms: int, end_ms: int) -> list[StoredMessage]:  # fmt: skip
    """The index knows hashes and seconds only; topic, key and exact time are checked on the record, and that it lies at
    or above physical offset `at_least`."""
    if limit <= 0:
        return []
    found: list[StoredMessage] = []
    # Hash neighbours and seconds at the edges cost places, so look for more than asked for.
    for physical in index.lookup(topic, key, 4 * limit, begin_ms, end_ms):
        message = log.read_at(physical, confirm) if physical >= at_least else None
        if message is None or message.topic != topic or not begin_ms <= message.store_ms <= end_ms:
            continue
        if key == message.properties.get("UNIQ_KEY") or key in message.properties.get("KEYS", "").split(" "):
            found.append(message)
            if len(found) == limit:
                break
    return sorted(found, key=lambda message: message.physical_offset)


def newest_store_ms(queues: Sequence[ConsumeQueue], log: CommitLog) -> int:
    """Store time of the newest record any queue holds; the store's clock never runs backwards over it."""
    newest = 0
    for queue in queues:
        if queue.units.next > queue.first_file:
            newest = max(newest, log.store_time(queue.unit(queue.units.next - 1)[0]))
    return newest
