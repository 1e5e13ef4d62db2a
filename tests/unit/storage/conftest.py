"""Tiny stores: a commit-log file takes two or three messages, a queue file three units, an index file eight entries.

They live in memory, where syncs are free; test_group_commit.py, which is about syncs, has its own on a disk.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from razzo.storage import FlushMode, NewMessage, Store, StoreSettings
from razzo.storage.faulty_files import FaultyFiles

NOW_MS = 1_700_000_000_000


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="razzo-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def open_store(tmp_path: Path, clock: Clock, files: FaultyFiles) -> Iterator[Callable[..., Store]]:
    """`open_store(**settings)` opens the store at tmp_path / "store"; all opened ones are closed at the end."""
    opened: list[Store] = []

    def open_it(**settings: Any) -> Store:
        store = Store(tmp_path / "store", tiny(**settings), clock_ms=clock, files=files)
        store.open()
        opened.append(store)
        return store

    yield open_it
    files.heal()
    for store in opened:
        store.close()


def tiny(**settings: Any) -> StoreSettings:
    sizes: dict[str, Any] = {
        "commit_log_file_bytes": 512,
        "consume_queue_file_units": 3,
        "index_slots": 5,
        "index_units": 9,
        "populate_step_bytes": 64,
        "queue_reserve_units": 1,
        "index_reserve_units": 2,
        "flush_mode": FlushMode.ASYNC,
    }
    return StoreSettings(**{**sizes, **settings})


@pytest.fixture
def message() -> Callable[..., NewMessage]:
    """`message(3)`: body "body 3", tag A, key k3, unique key u3."""

    def make(number: int = 0, topic: str = "T", queue_id: int = 0, tag: str = "A", **fields: Any) -> NewMessage:
        properties = f"TAGS\x01{tag}\x02KEYS\x01k{number}\x02UNIQ_KEY\x01u{number}\x02".encode()
        return NewMessage(topic, queue_id, fields.pop("body", b"body %d" % number), properties, **fields)

    return make


@pytest.fixture
def crash(tmp_path: Path) -> Callable[[Store], None]:
    """What a kill -9 leaves: memory-mapped bytes are there, `abort` is there, nothing was tidied."""

    def leave(store: Store) -> None:
        pages = (store.root / "checkpoint").read_bytes()
        store.close()
        (store.root / "abort").write_text("1")
        (store.root / "checkpoint").write_bytes(pages)

    return leave
