"""Readers in threads beside the writer: they see whole messages in order, never more than is confirmed, never less."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_pair import Clock, Pair
from twin.store import Message

from razzo.storage import FlushMode

BATCHES = 150
READERS = 3
READ_S_MAX = 60


def message(number: int, queue_id: int) -> Message:
    body = b"%06d" % number + bytes(number % 97)
    return Message("T", queue_id, body, b"TAGS\x01TagA\x02KEYS\x01k%d\x02" % number)


class Reader:
    """Follows one queue from its start to `count` messages; `failure` is the first thing that was wrong."""

    def __init__(self, pair: Pair, queue_id: int, count: int):
        self.pair, self.queue_id, self.count = pair, queue_id, count
        self.failure: BaseException | None = None
        self.seen = 0
        self.moved = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while self.seen < self.count:
                self._read_on()
        except BaseException as failure:
            self.failure = failure

    def _read_on(self) -> None:
        store = self.pair.store
        result = store.read("T", self.queue_id, self.seen)
        confirmed = store.confirm_offset
        for one in result.messages:
            assert one.queue_offset == self.seen
            assert bytes(one.body) == b"%06d" % self.seen + bytes(self.seen % 97)
            assert one.physical_offset + one.size <= confirmed
            self.seen += 1
        if not result.messages:
            self.moved.wait(0.001)


@pytest.mark.parametrize("mode", FlushMode)
def test_readers_beside_the_writer(mode: FlushMode, tmp_path: Path, interval: Callable[[float], Any]) -> None:
    """Files of all kinds roll under the readers' feet; thread switches come as often as they can."""
    interval(1e-5)
    pair = Pair(tmp_path / "store", Clock(), flush_mode=mode)
    readers = [Reader(pair, queue_id, BATCHES * 2) for queue_id in range(READERS)]
    try:
        for batch in range(BATCHES):
            pair.append([message(2 * batch + more, queue_id) for more in (0, 1) for queue_id in range(READERS)])
        pair.flush()
        for reader in readers:
            reader.thread.join(READ_S_MAX)
        assert [(reader.seen, reader.failure) for reader in readers] == [(BATCHES * 2, None)] * READERS
        pair.check()
    finally:
        for reader in readers:
            reader.count = 0
            reader.thread.join(READ_S_MAX)
        pair.close()
