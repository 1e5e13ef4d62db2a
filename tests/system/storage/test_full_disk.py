"""No space left: a clear DiskFull, nothing half written, reads go on, writes go on once there is space; no SIGBUS.

The disk is a real one of a few MiB where the machine lets us mount one, and always also the kernel's own limit on
file sizes, which refuses with EFBIG what a full disk refuses with ENOSPC. Each life is a child: a SIGBUS would end
only that one.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_children import in_child

from razzo.storage import DiskFull, FlushMode, NewMessage, Store, StoreSettings

DISK_BYTES = 6 << 20
FILE_LIMIT_BYTES = 96 << 10
FLUSH_S_MAX = 30
APPENDS_MAX = 100_000


def settings(**changed: Any) -> StoreSettings:
    sizes = {
        "commit_log_file_bytes": 1 << 20,
        "consume_queue_file_units": 3000,
        "index_slots": 1000,
        "index_units": 5000,
        "populate_ahead_bytes": 1 << 18,
        "populate_step_bytes": 1 << 16,
        "flush_mode": FlushMode.SYNC,
        "disk_full_percent": 100,
        "disk_clean_forcibly_percent": 100,
        "disk_max_used_percent": 100,
        **changed,
    }
    return StoreSettings(**sizes)


def message(number: int, size: int) -> NewMessage:
    properties = f"KEYS\x01k{number}\x02".encode()
    return NewMessage("Full", number % 3, number.to_bytes(8, "big") + bytes(size), properties)


def fill(store: Store, first: int, size: int) -> tuple[int, str]:
    """Appends until the store refuses; (messages appended, the refusal's text)."""
    for number in range(first, first + APPENDS_MAX):
        try:
            store.append([message(number, size)])
        except DiskFull as refusal:
            return number - first, str(refusal)
    raise AssertionError("the disk never filled up")


def bodies(store: Store) -> list[int]:
    """The numbers of all messages, by queue reads alone."""
    found = []
    for queue_id in store.queue_ids("Full"):
        low, high = store.queue_range("Full", queue_id)
        while low < high:
            result = store.read("Full", queue_id, low)
            found += [int.from_bytes(bytes(one.body)[:8], "big") for one in result.messages]
            low = result.next_offset
    return sorted(found)


def flush(store: Store) -> None:
    assert asyncio.run(store.wait_flushed(store.max_physical_offset, FLUSH_S_MAX))


def opened(root: Path, wanted: StoreSettings) -> Store:
    store = Store(root, wanted)
    store.open()
    return store


# -- a real small disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of DISK_BYTES; where this user may not mount, a directory under a limit set by the test's own child."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "razzo-test", str(disk)], capture_output=True, check=False
    )
    yield disk
    if done.returncode == 0:
        subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=True)


def live_on_a_small_disk(disk: Path, size: int, say: Callable[[Any], None]) -> None:
    """Fill up; read; fill again in vain; make space; go on; stop; open on a disk that is full once more."""
    mounted = disk.stat().st_dev != disk.parent.stat().st_dev
    spare = disk / "spare"
    if mounted:
        spare.write_bytes(bytes(DISK_BYTES // 2))
    else:
        _limit_files(FILE_LIMIT_BYTES)
    store = opened(disk / "store", settings())
    appended, text = fill(store, 0, size)
    say(("filled", appended, text))
    flush(store)
    assert bodies(store) == list(range(appended))
    more, _ = fill(store, appended, size)
    assert more == 0, "a full disk took more"
    assert bodies(store) == list(range(appended))
    if mounted:
        spare.unlink()
    else:
        _limit_files(DISK_BYTES)
    store.append([message(appended, size)])
    flush(store)
    assert bodies(store) == list(range(appended + 1))
    more, _ = fill(store, appended + 1, size) if mounted else (0, "")
    store.close()
    store = opened(disk / "store", settings())
    assert bodies(store) == list(range(appended + 1 + more))
    for number in (0, appended):
        assert [bytes(one.body)[:8] for one in store.query_by_key("Full", f"k{number}", 5, 0, 1 << 50)] == [
            number.to_bytes(8, "big")
        ]
    store.close()
    say(("stopped", appended + 1 + more))


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_a_full_disk(small_disk: Path, size: int) -> None:
    code, said = in_child(live_on_a_small_disk, small_disk, size)
    assert code == 0, f"ended with {code} after {said}"
    assert [one[0] for one in said] == ["filled", "stopped"]
    assert said[0][1] > 0
    assert "no space left" in said[0][2]


# -- the kernel's limit ------------------------------------------------------------------------------------------------


def _limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def live_under_a_limit(root: Path, say: Callable[[Any], None]) -> None:
    """Every file may grow to FILE_LIMIT_BYTES and no further, until the limit is raised."""
    _limit_files(FILE_LIMIT_BYTES)
    store = opened(root, settings(index_enabled=False))
    appended, text = fill(store, 0, 1000)
    say(("filled", appended, text))
    flush(store)
    assert bodies(store) == list(range(appended))
    _limit_files(64 << 20)
    store.append([message(appended, 1000)])
    flush(store)
    assert bodies(store) == list(range(appended + 1))
    store.close()
    say(("stopped", appended + 1))


def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    code, said = in_child(live_under_a_limit, tmp_path / "store")
    assert code == 0, f"ended with {code} after {said}"
    assert [one[0] for one in said] == ["filled", "stopped"]


def open_without_space(root: Path, say: Callable[[Any], None]) -> None:
    _limit_files(4096)
    try:
        opened(root, settings()).append([message(0, 10)])
    except DiskFull as refusal:
        say(str(refusal))


def test_a_disk_full_from_the_start(tmp_path: Path) -> None:
    """The very first file finds no room: refused by name, and the same folder works once there is space."""
    code, said = in_child(open_without_space, tmp_path / "store")
    assert code == 0, f"ended with {code}"
    assert len(said) == 1
    store = opened(tmp_path / "store", settings())
    store.append([message(0, 10)])
    flush(store)
    assert bodies(store) == [0]
    store.close()
