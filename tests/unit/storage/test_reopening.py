"""Stopping, crashing, cutting, deleting, damaging: what the next open finds."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from razzo.storage import CorruptStore, FlushMode, NewMessage, ReadStatus, Store, StoreLocked
from razzo.storage.faulty_files import FaultyFiles

Make = Callable[..., NewMessage]
Open = Callable[..., Store]
Crash = Callable[[Store], None]


def bodies(store: Store, queue_id: int = 0, topic: str = "T") -> list[bytes]:
    low, high = store.queue_range(topic, queue_id)
    found: list[bytes] = []
    while low < high:
        result = store.read(topic, queue_id, low, 100)
        found += [message.body for message in result.messages]
        low = result.next_offset
    return found


def wanted(count: int) -> list[bytes]:
    return [b"body %d" % number for number in range(count)]


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 11])
def test_a_clean_stop(open_store: Open, message: Make, mode: FlushMode, count: int) -> None:
    store = open_store(flush_mode=mode)
    store.append([message(number) for number in range(count)])
    end = store.max_physical_offset
    store.close()
    assert not (store.root / "abort").exists()
    again = open_store()
    assert (again.max_physical_offset, again.confirm_offset) == (end, end)
    assert bodies(again) == wanted(count)
    assert again.append([message(count)])[0].queue_offset == count


@pytest.mark.parametrize("count", [0, 1, 3, 4, 11])
@pytest.mark.parametrize(
    "lost", [(), ("consumequeue",), ("index",), ("checkpoint",), ("consumequeue", "index", "checkpoint")]
)
def test_a_crash(open_store: Open, message: Make, crash: Crash, count: int, lost: tuple[str, ...]) -> None:
    store = open_store()
    store.append([message(number) for number in range(count)])
    end = store.max_physical_offset
    crash(store)
    for name in lost:
        path = store.root / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    again = open_store()
    assert again.max_physical_offset == end
    assert bodies(again) == wanted(count)
    for number in range(count):
        assert [one.body for one in again.query_by_key("T", f"k{number}", 9, 0, 1 << 60)] == [b"body %d" % number]
    assert again.append([message(count)])[0].queue_offset == count


@pytest.mark.parametrize("folder", ["consumequeue/T/0", "index"])
@pytest.mark.parametrize("size", [0, 7, 61])
def test_a_derived_file_of_a_wrong_size_is_made_anew(open_store: Open, message: Make, folder: str, size: int) -> None:
    store = open_store()
    store.append([message(number) for number in range(11)])
    store.close()
    sorted((store.root / folder).iterdir())[0].write_bytes(bytes(size))
    again = open_store()
    assert bodies(again) == wanted(11)
    assert len(again.query_by_key("T", "k0", 9, 0, 1 << 60)) == 1


def test_other_sizes_than_before_only_rebuild(open_store: Open, message: Make) -> None:
    store = open_store()
    store.append([message(number) for number in range(11)])
    store.close()
    again = open_store(consume_queue_file_units=5, index_slots=3, index_units=20)
    assert bodies(again) == wanted(11)
    assert len(again.query_by_key("T", "u7", 9, 0, 1 << 60)) == 1


def test_a_torn_tail_is_cut(open_store: Open, message: Make, crash: Crash) -> None:
    store = open_store()
    last = store.append([message(number) for number in range(6)])[-1]
    crash(store)
    (store.root / "checkpoint").unlink()
    path = store.root / "commitlog" / f"{last.physical_offset // 512 * 512:020d}"
    data = bytearray(path.read_bytes())
    at = last.physical_offset % 512
    data[at + last.size // 2 : at + last.size] = bytes(last.size - last.size // 2)
    path.write_bytes(data)
    again = Store(store.root, store.settings)
    report = again.open()
    try:
        assert (report.end, report.cut_at) == (last.physical_offset, last.physical_offset)
        assert report.cut_reason in ("crc", "torn", "sizes")
        assert bodies(again) == wanted(5)
        assert not any(path.read_bytes()[at:])
    finally:
        again.close()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_damage_is_kept_and_passed_over(open_store: Open, message: Make, crash: Crash, checkpoint: bool) -> None:
    store = open_store()
    appended = store.append([message(number) for number in range(6)])
    crash(store)
    if not checkpoint:
        (store.root / "checkpoint").unlink()
    broken = appended[1]
    path = store.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[broken.physical_offset + 90] ^= 1
    path.write_bytes(data)
    again = Store(store.root, store.settings)
    report = again.open()
    try:
        assert report.damaged == ((broken.physical_offset, broken.physical_offset + broken.size),)
        assert report.cut_at is None
        assert "DAMAGED" in report.describe()
        assert again.queue_range("T", 0) == (0, 6)
        result = again.read("T", 0, 0)
        assert [one.queue_offset for one in result.messages] == [0, 2, 3, 4, 5]
        assert result.removed == 1
        assert again.read("T", 0, 1, 1).messages[0].queue_offset == 2
        assert again.read_offsets("T", 0, [1]) == [None]
        assert again.read_at(broken.physical_offset) is None
        assert again.query_by_key("T", "k1", 9, 0, 1 << 60) == []
        raw = again.tail(broken.physical_offset, 1 << 20)
        assert int.from_bytes(raw[28:36], "big") == appended[2].physical_offset
        assert path.read_bytes() == data
    finally:
        again.close()


def test_a_queue_of_nothing_but_damage_says_so(open_store: Open, message: Make, crash: Crash) -> None:
    store = open_store()
    first, _ = store.append([message(0), message(1, queue_id=1)])
    crash(store)
    path = store.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[first.physical_offset + 90] ^= 1
    path.write_bytes(data)
    result = open_store().read("T", 0, 0)
    assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 1)


def test_missing_log_files_are_refused_and_nothing_is_changed(open_store: Open, message: Make) -> None:
    store = open_store()
    store.append([message(number) for number in range(11)])
    store.close()
    files = sorted((store.root / "commitlog").iterdir())
    kept = files[1].read_bytes()
    files[1].unlink()
    with pytest.raises(CorruptStore, match="does not follow"):
        open_store()
    files[1].write_bytes(kept)
    files[-1].unlink()
    with pytest.raises(CorruptStore, match=r"on disk up to \d+ but its files end"):
        open_store()
    assert len(list((store.root / "consumequeue" / "T" / "0").iterdir())) == 4


@pytest.mark.parametrize(
    ("name", "size", "text"), [(".DS_Store", 512, "not a commit-log file"), (f"{512:020d}", 99, "99 bytes")]
)
def test_strays_in_the_log_folder_are_refused(open_store: Open, message: Make, name: str, size: int, text: str) -> None:
    store = open_store()
    store.append([message(0)])
    store.close()
    (store.root / "commitlog" / name).write_bytes(bytes(size))
    with pytest.raises(CorruptStore, match=text):
        open_store()


def test_prepared_files_of_a_crash_are_dropped(open_store: Open, message: Make, crash: Crash) -> None:
    store = open_store()
    store.append([message(0)])
    crash(store)
    (store.root / "commitlog" / f"{512:020d}").write_bytes(bytes(512))
    (store.root / "commitlog" / f"{1024:020d}").write_bytes(b"")
    again = open_store()
    assert bodies(again) == wanted(1)
    assert again.append([message(number) for number in range(1, 9)])[-1].queue_offset == 8


def test_a_second_open_is_refused(open_store: Open, message: Make) -> None:
    store = open_store()
    with pytest.raises(StoreLocked, match="open already"):
        open_store()
    assert store.append([message(0)])[0].queue_offset == 0
    store.close()
    assert bodies(open_store()) == wanted(1)


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 5, 9, 11])
@pytest.mark.parametrize("then", ["go on", "stop", "crash"])
def test_truncate(open_store: Open, message: Make, crash: Crash, keep: int, then: str) -> None:
    store = open_store()
    appended = store.append([message(number) for number in range(12)])
    store.truncate(appended[keep].physical_offset)
    assert store.max_physical_offset == store.confirm_offset == appended[keep].physical_offset
    assert bodies(store) == wanted(keep)
    assert [len(store.query_by_key("T", f"k{n}", 9, 0, 1 << 60)) for n in range(12)] == [1] * keep + [0] * (12 - keep)
    if then != "go on":
        store.close() if then == "stop" else crash(store)
        store = open_store()
    assert bodies(store) == wanted(keep)
    again = store.append([message(number) for number in range(keep, 12)])
    assert [one.queue_offset for one in again] == list(range(keep, 12))
    assert bodies(store) == wanted(12)


def test_truncate_wants_the_start_of_a_record(open_store: Open, message: Make) -> None:
    store = open_store()
    store.append([message(number) for number in range(3)])
    with pytest.raises(ValueError, match="no record begins at offset 5"):
        store.truncate(5)
    store.truncate(store.max_physical_offset)
    assert bodies(store) == wanted(3)


@pytest.mark.parametrize("then", ["go on", "stop", "crash", "crash and lose the queues"])
def test_a_deleted_topic_stays_deleted(open_store: Open, message: Make, crash: Crash, then: str) -> None:
    store = open_store()
    store.append([message(number, topic=topic) for number in range(7) for topic in ("T", "Other")])
    store.delete_topic("T")
    assert store.topics() == ["Other"]
    assert not (store.root / "consumequeue" / "T").exists()
    store.append([message(100)])
    if then != "go on":
        store.close() if then == "stop" else crash(store)
        if "lose" in then:
            shutil.rmtree(store.root / "consumequeue")
        store = open_store()
    assert bodies(store) == [b"body 100"]
    assert bodies(store, topic="Other") == wanted(7)
    assert store.query_by_key("T", "k3", 9, 0, 1 << 60) == []
    assert store.append([message(101)])[0].queue_offset == 1


def test_deleting_what_is_not_there(open_store: Open) -> None:
    store = open_store()
    store.delete_topic("Nothing")
    assert not (store.root / "config" / "razzo").exists()


def test_a_queue_that_begins_above_zero_is_rebuilt_there(
    open_store: Open, message: Make, files: FaultyFiles, crash: Crash
) -> None:
    store = open_store()
    for number in range(20):
        store.append([message(number)])
    store._flusher.flush_now()
    files.used_percent = 86
    store.run_retention(0)
    ranges = store.queue_range("T", 0)
    assert ranges[0] > 3
    crash(store)
    shutil.rmtree(store.root / "consumequeue")
    again = open_store()
    assert again.queue_range("T", 0) == ranges
    assert again.read("T", 0, ranges[0]).messages[0].queue_offset == ranges[0]


def test_the_lock_file_is_apaches(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    assert (store.root / "lock").read_bytes() == b"lock"
    assert (store.root / "abort").read_text().isdigit()


def test_a_queue_that_lost_all_its_files_is_rebuilt_from_its_beginning(
    open_store: Open, message: Make, clock: Any
) -> None:
    """The checkpoint says that older log files need no second look, but nobody told it that the queue is gone."""
    store = open_store()
    for number in range(12):
        clock.now_ms += 10_000
        store.append([message(number)])
    assert len(list((store.root / "commitlog").iterdir())) > 3
    store.close()
    (store.root / "abort").write_text("1")
    shutil.rmtree(store.root / "consumequeue")
    again = open_store()
    assert again.queue_range("T", 0) == (0, 12)
    assert [one.body for one in again.read("T", 0, 0).messages] == [b"body %d" % number for number in range(12)]
