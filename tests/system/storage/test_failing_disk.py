"""A disk that says no once.

A failed sync is final (the kernel may have dropped the pages), and nobody is told "on disk".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_pair import TINY, WAIT_S_MAX, Clock, Pair, facts, new_message
from twin.store import Message

from razzo.storage import DiskFull, FlushMode, Store, StoreClosed, StoreSettings
from razzo.storage.files import FileLayer

CHANGED = {"flush_mode": FlushMode.SYNC}
SETTINGS = StoreSettings(**{**TINY, **CHANGED})


class RefusingFiles(FileLayer):
    """Once armed, one kind of call fails with one errno."""

    def __init__(self) -> None:
        super().__init__()
        self.call, self.number = "", 0

    def arm(self, call: str, number: int) -> None:
        self.call, self.number = call, number

    def _maybe_refuse(self, call: str) -> None:
        if call == self.call:
            raise OSError(self.number, os.strerror(self.number))

    def sync_data(self, fd: int) -> None:
        self._maybe_refuse("sync_data")
        super().sync_data(fd)

    def reserve(self, fd: int, offset: int, length: int) -> None:
        try:
            self._maybe_refuse("reserve")
        except OSError as error:
            raise self._refusal(error, None) from error
        super().reserve(fd, offset, length)


class Refused(Pair):
    """A pair whose Store stands on RefusingFiles."""

    def __init__(self, root: Path):
        self.files = RefusingFiles()
        super().__init__(root, Clock(), **CHANGED)

    def _opened(self) -> Store:
        store = Store(self.root, self.settings, clock_ms=self.clock, files=self.files)
        store.attach_loop(self.loop)
        store.open()
        return store


def message(number: int) -> Message:
    return Message("T", number % 2, b"body %d" % number, b"KEYS\x01k%d\x02" % number)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Refused]:
    pair = Refused(tmp_path / "store")
    for number in range(4):
        pair.append([message(number)])
    pair.flush()
    yield pair
    pair.close()


def test_a_failed_sync_is_final(pair: Refused, tmp_path: Path) -> None:
    confirmed = pair.store.confirm_offset
    pair.files.arm("sync_data", errno.EIO)
    pair.store.append([new_message(message(4))])
    with pytest.raises(StoreClosed):
        pair.loop.run_until_complete(pair.store.wait_flushed(pair.store.max_physical_offset, WAIT_S_MAX))
    pair.files.arm("", 0)
    with pytest.raises(StoreClosed):
        pair.store.append([new_message(message(5))])
    with pytest.raises(StoreClosed):
        pair.loop.run_until_complete(pair.store.wait_flushed(pair.store.max_physical_offset, WAIT_S_MAX))
    assert pair.store.confirm_offset == confirmed, "what was not synced is not readable"
    pair.check_answers()
    pair.store.close()
    assert (pair.root / "abort").exists(), "such a stop is no clean one"
    again = Pair(pair.root, Clock(), **CHANGED)
    for record in pair.twin.records:
        assert facts(again.store.read_at(record.physical_offset)) == facts(record)
    again.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_a_roll_is_no_end(pair: Refused, number: int) -> None:
    """The roll into a new file is refused, then granted.

    The batch that was refused left nothing, and is taken later.
    """
    big = [message(n)._replace(body=bytes(700)) for n in range(3)]
    pair.files.arm("reserve", number)
    with pytest.raises(DiskFull):
        pair.store.append([new_message(one) for one in big])
    pair.check_answers()
    pair.files.arm("", 0)
    pair.append(big)
    pair.flush()
    pair.check()
    pair.reopen_after_stop()
    pair.check()
