"""A disk that refuses: nothing is written, the error says so, and the store goes on when it is willing again."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from razzo.storage import DiskFull, NewMessage, Store, StoreError
from razzo.storage.faulty_files import FaultyFiles

Make = Callable[..., NewMessage]
Open = Callable[..., Store]


@pytest.mark.parametrize("operation", ["open", "reserve", "pwrite", "set_size", "map"])
@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_nothing_is_written(
    open_store: Open, message: Make, files: FaultyFiles, operation: str, after: int, code: int
) -> None:
    store = open_store(populate_ahead_bytes=0)
    store.append([message(number) for number in range(3)])
    before = (store.max_physical_offset, store.queue_range("T", 0), store.queue_range("New", 0))
    files.fail(operation, code, after=after)
    batch = [message(number, topic=topic) for number in range(12) for topic in ("T", "New")]
    refused: StoreError | None = None
    try:
        store.append(batch)
    except StoreError as error:
        refused = error
    if refused is not None:
        assert isinstance(refused, DiskFull) == (code != errno.EIO)
        assert (store.max_physical_offset, store.queue_range("T", 0), store.queue_range("New", 0)) == before
        assert len(store.read("T", 0, 0).messages) == 3
    else:
        assert files.calls[operation] <= after or operation in ("open", "set_size")
    files.heal()
    start = store.queue_range("New", 0)[1]
    assert [one.queue_offset for one in store.append([message(0, topic="New")])] == [start]


def test_a_store_on_a_full_disk_can_be_read_closed_and_opened(
    open_store: Open, message: Make, files: FaultyFiles, crash: Callable[[Store], None]
) -> None:
    store = open_store()
    store.append([message(number) for number in range(10)])
    files.fail("reserve", errno.ENOSPC)
    with pytest.raises(DiskFull, match="No space left"):
        store.append([message(number) for number in range(50)])
    assert len(store.read("T", 0, 0).messages) == 10
    files.heal()
    crash(store)
    again = open_store()
    assert again.queue_range("T", 0) == (0, 10)
    assert again.append([message(10)])[0].queue_offset == 10


def test_no_file_is_left_by_a_refused_segment(open_store: Open, message: Make, files: FaultyFiles) -> None:
    store = open_store(populate_ahead_bytes=0)
    store.append([message(0)])
    names = sorted(path.name for path in (store.root / "commitlog").iterdir())
    files.fail("reserve", errno.ENOSPC)
    with pytest.raises(DiskFull):
        store.append([message(number) for number in range(20)])
    assert sorted(path.name for path in (store.root / "commitlog").iterdir()) == names


def test_an_open_that_fails_frees_the_lock(open_store: Open, message: Make, files: FaultyFiles, tmp_path: Path) -> None:
    open_store().close()
    files.fail("pwrite", errno.ENOSPC)
    with pytest.raises(DiskFull):
        open_store()
    files.heal()
    assert open_store().max_physical_offset == 0


def test_a_config_that_cannot_be_written_leaves_the_old_one(open_store: Open, files: FaultyFiles) -> None:
    store = open_store()
    store.save_config("topics", {"a": 1})
    files.fail("pwrite", errno.ENOSPC)
    with pytest.raises(DiskFull):
        store.save_config("topics", {"a": 2})
    files.heal()
    assert store.load_config("topics") == {"a": 1}
    assert sorted(path.name for path in (store.root / "config").iterdir()) == ["topics.json"]
