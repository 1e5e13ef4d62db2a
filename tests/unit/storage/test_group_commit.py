"""Waiting for the disk: one fdatasync for many, timeouts, failure, visibility."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from razzo.storage import FlushMode, NewMessage, Store, StoreClosed, StoreError
from razzo.storage.faulty_files import FaultyFiles

Make = Callable[..., NewMessage]
Open = Callable[..., Store]


class Gate:
    """Holds the flusher at a crash point until it is opened; `closed` tells that it has arrived there."""

    def __init__(self, files: FaultyFiles, point: str) -> None:
        self.arrived = threading.Event()
        self.opened = threading.Event()
        files.at(point, self.stop)

    def stop(self) -> None:
        self.arrived.set()
        if not self.opened.wait(30):
            raise TimeoutError("the gate was never opened")


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real disk."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture
def store(open_store: Open, files: FaultyFiles) -> Store:
    return open_store(flush_mode=FlushMode.SYNC, commit_log_file_bytes=1 << 20, checkpoint_interval_ms=3_600_000)


async def test_one_sync_serves_all_who_wait(store: Store, message: Make, files: FaultyFiles) -> None:
    await flushed(store, store.append([message(0)])[-1])
    gate = Gate(files, "flush.before")
    first = asyncio.create_task(flushed(store, store.append([message(1)])[-1]))
    await asyncio.to_thread(gate.arrived.wait, 30)
    others = [asyncio.create_task(flushed(store, store.append([message(number)])[-1])) for number in range(2, 102)]
    await asyncio.sleep(0)
    assert store.describe()["waiters"] == 101
    before, flushes = files.calls["sync_data"], store.describe()["flushes"]
    gate.opened.set()
    assert await first
    assert all(await asyncio.gather(*others))
    assert files.calls["sync_data"] - before == store.describe()["flushes"] - flushes <= 2
    assert store.flushed_offset == store.max_physical_offset
    assert store.describe()["waiters"] == 0


async def flushed(store: Store, last: tuple[int, int, int, int]) -> bool:
    return await store.wait_flushed(last[1] + last[2])


async def test_readers_see_a_record_once_it_is_on_disk(store: Store, message: Make, files: FaultyFiles) -> None:
    gate = Gate(files, "flush.before")
    (appended,) = store.append([message(0)])
    await asyncio.to_thread(gate.arrived.wait, 30)
    assert store.confirm_offset == 0
    assert store.queue_range("T", 0) == (0, 0)
    assert store.read_at(0) is None
    assert store.tail(0, 100) == b""
    assert store.tail(0, 100, until=store.max_physical_offset)[:4] == appended.size.to_bytes(4, "big")
    assert store.query_by_key("T", "k0", 9, 0, 1 << 60) == []
    gate.opened.set()
    assert await store.wait_flushed(appended.size)
    assert store.queue_range("T", 0) == (0, 1)


async def test_a_slow_disk_times_out_and_the_record_stays(store: Store, message: Make, files: FaultyFiles) -> None:
    gate = Gate(files, "flush.before")
    (appended,) = store.append([message(0)])
    assert await store.wait_flushed(appended.size, 0.01) is False
    assert store.describe()["waiters"] == 0
    gate.opened.set()
    assert await store.wait_flushed(appended.size)


async def test_a_cancelled_waiter_is_forgotten(store: Store, message: Make, files: FaultyFiles) -> None:
    gate = Gate(files, "flush.before")
    task = asyncio.create_task(flushed(store, store.append([message(0)])[-1]))
    await asyncio.to_thread(gate.arrived.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.describe()["waiters"] == 0
    gate.opened.set()


async def test_too_many_waiters(open_store: Open, message: Make, files: FaultyFiles) -> None:
    store = open_store(flush_mode=FlushMode.SYNC, waiters_max=1)
    gate = Gate(files, "flush.before")
    (appended,) = store.append([message(0)])
    first = asyncio.create_task(store.wait_flushed(appended.size))
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="1 senders are waiting"):
        await store.wait_flushed(appended.size)
    gate.opened.set()
    assert await first


async def test_a_failed_sync_is_final(store: Store, message: Make, files: FaultyFiles) -> None:
    await flushed(store, store.append([message(0)])[-1])
    safe = store.flushed_offset
    files.fail("sync_data", errno.EIO, times=1)
    (appended,) = store.append([message(1)])
    with pytest.raises(StoreClosed, match="could not be put on disk"):
        await flushed(store, appended)
    # The next sync would succeed, and prove nothing.
    with pytest.raises(StoreClosed, match="could not be put on disk"):
        store.append([message(2)])
    with pytest.raises(StoreClosed):
        await store.wait_flushed(store.max_physical_offset)
    assert (store.flushed_offset, store.confirm_offset) == (safe, safe)
    assert store.queue_range("T", 0) == (0, 1)
    assert not store.describe()["writable"]
    store.close()
    assert (store.root / "abort").exists()


async def test_callbacks_tell_of_each_move(store: Store, message: Make) -> None:
    store.attach_loop(asyncio.get_running_loop())
    seen: list[int] = []
    store.on_confirmed(seen.append)
    for number in range(3):
        assert await flushed(store, store.append([message(number)])[-1])
    assert seen == sorted(set(seen))
    assert seen[-1] == store.confirm_offset


async def test_async_appends_share_a_call(open_store: Open, message: Make) -> None:
    store = open_store(commit_log_file_bytes=1 << 20)
    store.attach_loop(asyncio.get_running_loop())
    seen: list[int] = []
    store.on_confirmed(seen.append)
    for number in range(5):
        store.append([message(number)])
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [store.max_physical_offset]


async def test_async_mode_can_be_waited_for_too(open_store: Open, message: Make) -> None:
    store = open_store(flush_interval_ms=3_600_000)
    (appended,) = store.append([message(0)])
    assert store.confirm_offset == appended.size
    assert await store.wait_flushed(appended.size)
    assert store.flushed_offset == appended.size


async def test_closing_releases_who_waits(store: Store, message: Make, files: FaultyFiles) -> None:
    gate = Gate(files, "flush.before")
    task = asyncio.create_task(flushed(store, store.append([message(0)])[-1]))
    await asyncio.to_thread(gate.arrived.wait, 30)
    closing = asyncio.create_task(asyncio.to_thread(store.close))
    gate.opened.set()
    assert await task
    await closing


def test_async_mode_flushes_by_itself(open_store: Open, message: Make, files: FaultyFiles) -> None:
    store = open_store(flush_interval_ms=1)
    done = threading.Event()
    files.at("flush.after", done.set)
    store.append([message(0)])
    assert done.wait(30)


async def test_a_batch_that_does_not_hurry_goes_with_the_next(open_store: Open, message: Make) -> None:
    """Without `flush` nothing is synced until somebody asks; then both are on disk."""
    store = open_store(
        flush_mode=FlushMode.SYNC, commit_log_file_bytes=1 << 20, flush_interval_ms=3_600_000,
        checkpoint_interval_ms=3_600_000,
    )  # fmt: skip
    await flushed(store, store.append([message(0)])[-1])
    flushes = store.describe()["flushes"]
    (quiet,) = store.append([message(1)], flush=False)
    assert (store.describe()["flushes"], store.queue_range("T", 0)) == (flushes, (0, 1))
    assert await flushed(store, store.append([message(2)])[-1])
    assert store.flushed_offset >= quiet.physical_offset + quiet.size
    assert store.queue_range("T", 0) == (0, 3)


async def test_a_batch_that_does_not_hurry_is_on_disk_after_the_interval(open_store: Open, message: Make) -> None:
    store = open_store(flush_mode=FlushMode.SYNC, commit_log_file_bytes=1 << 20, flush_interval_ms=20)
    confirmed = asyncio.Event()
    store.attach_loop(asyncio.get_running_loop())
    store.on_confirmed(lambda _: confirmed.set())
    (quiet,) = store.append([message(0)], flush=False)
    await asyncio.wait_for(confirmed.wait(), 30)
    assert store.flushed_offset == quiet.physical_offset + quiet.size


async def test_waiting_hurries_a_quiet_batch(open_store: Open, message: Make) -> None:
    store = open_store(flush_mode=FlushMode.SYNC, commit_log_file_bytes=1 << 20, flush_interval_ms=3_600_000)
    assert await flushed(store, store.append([message(0)], flush=False)[-1])
