"""Readers in threads while the writer appends, rolls, cuts and expires: never a wrong byte, never a crash."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from razzo.storage import FlushMode, NewMessage, ReadStatus, Store
from razzo.storage.faulty_files import FaultyFiles

ROUNDS = 60


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Threads change places every 50 us instead of every 5 ms: more meetings in less time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(50e-6)
    yield
    sys.setswitchinterval(before)


class Reader(threading.Thread):
    """Reads queue 0 from its beginning over and over until told to stop; keeps what went wrong."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self.store = store
        self.stopping = threading.Event()
        self.seen = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.pass_once()
        except Exception as error:
            self.wrong.append(repr(error))

    def pass_once(self) -> None:
        offset, end = self.store.queue_range("T", 0)
        while offset < end:
            result = self.store.read("T", 0, offset, 20)
            for message in result.messages:
                if message.body != b"body %d" % message.queue_offset or not offset <= message.queue_offset:
                    self.wrong.append(f"{message!r} has body {message.body!r}")
                if message.physical_offset + message.size > self.store.confirm_offset and not self.cuts:
                    self.wrong.append(f"{message!r} is above the confirm offset")
            self.seen += len(result.messages)
            if result.next_offset <= offset and result.status is ReadStatus.FOUND:
                self.wrong.append(f"no way on at {offset}")
            offset = result.next_offset if result.messages else end

    cuts = False


def together(store: Store, work: Callable[[int], None], cuts: bool = False) -> int:
    readers = [Reader(store) for _ in range(3)]
    for reader in readers:
        reader.cuts = cuts
        reader.start()
    for number in range(ROUNDS):
        work(number)
    for reader in readers:
        reader.stopping.set()
        reader.join(30)
        assert not reader.is_alive()
        reader.pass_once()
        assert reader.wrong == []
    return min(reader.seen for reader in readers)


def test_appending(open_store: Callable[..., Store], message: Callable[..., NewMessage]) -> None:
    for mode in FlushMode:
        store = open_store(flush_mode=mode)
        before = store.queue_range("T", 0)[1]

        def work(number: int, store: Store = store, before: int = before) -> None:
            store.append([message(before + 3 * number + step) for step in range(3)])

        assert together(store, work) > 0
        store._flusher.flush_now()
        assert store.queue_range("T", 0) == (0, before + 3 * ROUNDS)
        store.close()


def test_cutting(open_store: Callable[..., Store], message: Callable[..., NewMessage]) -> None:
    store = open_store()

    def work(number: int) -> None:
        begin = store.queue_range("T", 0)[1]
        appended = store.append([message(begin + step) for step in range(4)])
        if number % 3 == 0:
            store.truncate(appended[1].physical_offset)

    together(store, work, cuts=True)
    assert store.queue_range("T", 0)[1] == 4 * ROUNDS - 3 * len(range(0, ROUNDS, 3))


def test_expiring(open_store: Callable[..., Store], message: Callable[..., NewMessage], files: FaultyFiles) -> None:
    store = open_store(delete_batch_files_max=1)
    files.used_percent = 86

    def work(number: int) -> None:
        begin = store.queue_range("T", 0)[1]
        store.append([message(begin + step) for step in range(4)])
        if number % 5 == 4:
            store._flusher.flush_now()
            store.run_retention(0)

    together(store, work)
    assert store.queue_range("T", 0)[1] == 4 * ROUNDS
    assert store.min_physical_offset > 0
