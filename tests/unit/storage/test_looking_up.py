"""By time and by key."""

from collections.abc import Callable
from typing import Any

import pytest

from razzo.storage import NewMessage, Store

Make = Callable[..., NewMessage]
Open = Callable[..., Store]
NOW_MS = 1_700_000_000_000


@pytest.fixture
def timed(open_store: Open, message: Make, clock: Any) -> Store:
    """Seven messages stored at +0, +10, +10, +10, +20, +30, +30 ms."""
    store = open_store()
    for number, offset in enumerate((0, 10, 10, 10, 20, 30, 30)):
        clock.now_ms = NOW_MS + offset
        store.append([message(number)])
    return store


@pytest.mark.parametrize(
    ("offset_ms", "lower", "upper"),
    [(-1, 0, 0), (0, 0, 0), (5, 1, 0), (10, 1, 3), (15, 4, 3), (20, 4, 4), (30, 5, 6), (31, 7, 6), (1 << 40, 7, 6)],
)
def test_offset_by_time(timed: Store, offset_ms: int, lower: int, upper: int) -> None:
    assert timed.offset_by_time("T", 0, NOW_MS + offset_ms) == lower
    assert timed.offset_by_time("T", 0, NOW_MS + offset_ms, upper=True) == upper


def test_time_in_a_queue_that_is_not_there(timed: Store) -> None:
    assert timed.offset_by_time("Nothing", 0, NOW_MS) == 0


def test_keys_and_unique_keys(open_store: Open, message: Make) -> None:
    store = open_store()
    store.append([message(number) for number in range(20)])
    for number in range(20):
        for key in (f"k{number}", f"u{number}"):
            assert [one.body for one in store.query_by_key("T", key, 5, 0, 1 << 60)] == [b"body %d" % number]
    assert store.query_by_key("T", "k20", 5, 0, 1 << 60) == []
    assert store.query_by_key("Other", "k1", 5, 0, 1 << 60) == []


def test_several_keys_and_several_messages_of_one_key(open_store: Open, clock: Any) -> None:
    store = open_store()
    for number in range(9):
        clock.now_ms = NOW_MS + 1000 * number
        store.append([NewMessage("T", 0, b"%d" % number, b"KEYS\x01 all  n%d \x02" % number)])
    assert [one.body for one in store.query_by_key("T", "all", 99, 0, 1 << 60)] == [b"%d" % n for n in range(9)]
    assert [one.body for one in store.query_by_key("T", "all", 2, 0, 1 << 60)] == [b"7", b"8"]
    span = store.query_by_key("T", "all", 99, NOW_MS + 3000, NOW_MS + 5000)
    assert [one.body for one in span] == [b"3", b"4", b"5"]
    assert [one.body for one in store.query_by_key("T", "n4", 99, 0, 1 << 60)] == [b"4"]
    assert store.query_by_key("T", "", 99, 0, 1 << 60) == []
    assert store.query_by_key("T", "all", 0, 0, 1 << 60) == []


def test_hash_neighbours_are_told_apart(open_store: Open) -> None:
    """ "Aa" and "BB" have the same Java hash."""
    store = open_store()
    store.append([NewMessage("T", 0, key, b"KEYS\x01" + key + b"\x02") for key in (b"Aa", b"BB", b"Aa")])
    assert [one.body for one in store.query_by_key("T", "BB", 9, 0, 1 << 60)] == [b"BB"]


def test_without_an_index(open_store: Open, message: Make) -> None:
    store = open_store(index_enabled=False)
    store.append([message(1)])
    assert store.query_by_key("T", "k1", 9, 0, 1 << 60) == []
    assert not (store.root / "index").exists()
