"""retention.decide: marks, hour, expiry, batch; and what run_retention does with it."""

import os
from collections.abc import Callable

import pytest

from razzo.storage import DiskFull, NewMessage, ReadStatus, Store
from razzo.storage.faulty_files import FaultyFiles
from razzo.storage.retention import Reason, RetentionRules, decide

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
RULES = RetentionRules(retention_hours=72, delete_hour=4, delete_batch_files_max=3)
OLD, EDGE, YOUNG = NOW_MS - 100 * HOUR_MS, NOW_MS - 72 * HOUR_MS, NOW_MS - 72 * HOUR_MS + 1


@pytest.mark.parametrize(
    ("used", "hour", "mtimes", "remove", "reason", "writable"),
    [
        (74, 3, [OLD, OLD], 0, Reason.NONE, True),
        (74, 4, [OLD, OLD], 1, Reason.HOUR, True),
        (74, 4, [EDGE, OLD], 1, Reason.HOUR, True),
        (74, 4, [YOUNG, OLD, OLD], 0, Reason.HOUR, True),
        (74, 4, [OLD, YOUNG, OLD, OLD], 1, Reason.HOUR, True),
        (75, 12, [OLD, YOUNG], 1, Reason.SPACE, True),
        (75, 12, [YOUNG, YOUNG], 0, Reason.SPACE, True),
        (84, 12, [YOUNG, YOUNG], 0, Reason.SPACE, True),
        (85, 12, [YOUNG, YOUNG, YOUNG], 2, Reason.FORCED, True),
        (89, 4, [YOUNG, YOUNG], 1, Reason.FORCED, True),
        (90, 12, [YOUNG] * 9, 3, Reason.FORCED, False),
        (100, 12, [YOUNG], 0, Reason.FORCED, False),
        (74, 4, [], 0, Reason.HOUR, True),
    ],
)
def test_decide(used: int, hour: int, mtimes: list[int], remove: int, reason: Reason, writable: bool) -> None:
    decision = decide(RULES, mtimes, hour, used, NOW_MS)
    assert (decision.remove, decision.reason, decision.writable) == (remove, reason, writable)


def fill(store: Store, message: Callable[..., NewMessage], count: int) -> None:
    for number in range(count):
        store.append([message(number)])
    store._flusher.flush_now()


def test_old_files_go_with_their_queue_and_index_files(
    open_store: Callable[..., Store], message: Callable[..., NewMessage], files: FaultyFiles
) -> None:
    store = open_store(delete_batch_files_max=2)
    fill(store, message, 20)
    files.used_percent = 86
    before = store.describe()
    report = store.run_retention(NOW_MS)
    assert (report.reason, report.log_files_removed, report.writable) == (Reason.FORCED, 2, True)
    assert report.min_physical_offset == store.min_physical_offset == 1024
    low, high = store.queue_range("T", 0)
    assert high == 20
    assert low > 0
    assert store.read("T", 0, low).messages[0].physical_offset == 1024
    assert store.read("T", 0, low - 1).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.query_by_key("T", "k0", 1, 0, NOW_MS) == []
    assert report.queue_files_removed == low // 3
    assert store.describe()["index_files"] < before["index_files"]
    assert len(store.query_by_key("T", "k19", 1, 0, NOW_MS)) == 1


def test_what_retention_left_opens_again(
    open_store: Callable[..., Store],
    message: Callable[..., NewMessage],
    files: FaultyFiles,
    crash: Callable[[Store], None],
) -> None:
    store = open_store()
    fill(store, message, 20)
    files.used_percent = 86
    store.run_retention(NOW_MS)
    start, ranges = store.min_physical_offset, store.queue_range("T", 0)
    crash(store)
    again = open_store()
    assert again.queue_range("T", 0) == ranges
    assert again.min_physical_offset == start > 0


def test_expired_by_file_time(
    open_store: Callable[..., Store], message: Callable[..., NewMessage], files: FaultyFiles
) -> None:
    store = open_store()
    fill(store, message, 20)
    files.used_percent = 80
    now_ms = NOW_MS + 20 * 365 * 24 * HOUR_MS
    first, second = sorted((store.root / "commitlog").iterdir())[:2]
    os.utime(first, (1, 1))
    os.utime(second, (now_ms / 1000, now_ms / 1000))
    assert store.run_retention(now_ms).log_files_removed == 1


def test_a_full_disk_takes_nothing_until_there_is_space(
    open_store: Callable[..., Store], message: Callable[..., NewMessage], files: FaultyFiles
) -> None:
    store = open_store()
    files.used_percent = 90
    assert not store.run_retention(NOW_MS).writable
    with pytest.raises(DiskFull, match="90 percent"):
        store.append([message()])
    files.used_percent = 89
    assert store.run_retention(NOW_MS).writable
    assert store.append([message()])[0].queue_offset == 0


def test_a_message_held_by_a_reader_outlives_its_file(
    open_store: Callable[..., Store], message: Callable[..., NewMessage], files: FaultyFiles
) -> None:
    store = open_store()
    fill(store, message, 20)
    view = memoryview(store._log.view.maps[0])
    kept = bytes(view)
    files.used_percent = 86
    store.run_retention(NOW_MS)
    assert store.min_physical_offset > 0
    assert bytes(view) == kept
