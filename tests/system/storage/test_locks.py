"""One store, one process: whoever comes second is refused and changes nothing."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest
from storage_children import Child, Plan, in_child
from store_pair import TINY, Pair
from twin.store import Message

from razzo.storage import Store, StoreLocked, StoreSettings

NOW_MS = 1_700_000_000_000


def open_in_child(root: Path, say: Callable[[object], None]) -> None:
    try:
        Store(root, StoreSettings(**TINY)).open()
    except StoreLocked as refusal:
        say(str(refusal))


def test_another_process_is_refused(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        pair.append([Message("T", 0, b"first", b"")])
        code, said = in_child(open_in_child, tmp_path)
        assert code == 0
        assert len(said) == 1
        assert str(tmp_path) in said[0]
        pair.append([Message("T", 0, b"second", b"")])
        pair.check()
    finally:
        pair.close()


def test_a_second_store_of_the_same_process_is_refused(tmp_path: Path) -> None:
    """POSIX locks do not tell one process's two openings apart, and the second's close would drop the first's."""
    pair = Pair(tmp_path)
    try:
        pair.append([Message("T", 0, b"first", b"")])
        with pytest.raises(StoreLocked):
            Store(tmp_path, StoreSettings(**TINY)).open()
        code, said = in_child(open_in_child, tmp_path)
        assert (code, len(said)) == (0, 1)
        pair.check()
    finally:
        pair.close()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    steps = [("open",), ("append", [Message("T", 0, b"first", b"")]), ("hold",)]
    child = Child(Plan(tmp_path / "store", StoreSettings(**TINY), steps, NOW_MS))
    child.wait_done(2)
    with pytest.raises(StoreLocked):
        Store(tmp_path / "store", StoreSettings(**TINY)).open()
    child.kill()
    store = Store(tmp_path / "store", StoreSettings(**TINY))
    store.open()
    assert [bytes(message.body) for message in store.read("T", 0, 0).messages] == [b"first"]
    store.close()


def lock_as_java_does(path: Path, say: Callable[[object], None]) -> None:
    """FileChannel.tryLock(0, 1): a POSIX record lock on byte 0."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as refusal:
            say(refusal.errno)
        else:
            say("locked")


def test_the_lock_is_javas(tmp_path: Path) -> None:
    """Apache's broker takes a POSIX lock on byte 0 of `lock`, which says "lock": each keeps the other out."""
    pair = Pair(tmp_path)
    try:
        assert in_child(lock_as_java_does, tmp_path / "lock") in ((0, [errno.EAGAIN]), (0, [errno.EACCES]))
    finally:
        pair.close()
    assert in_child(lock_as_java_does, tmp_path / "lock") == (0, ["locked"])
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_apache_keeps_us_out(tmp_path: Path) -> None:
    """While another process holds that lock, we neither open nor touch anything."""
    with (tmp_path / "lock").open("w+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        code, said = in_child(open_in_child, tmp_path)
        assert (code, len(said)) == (0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
