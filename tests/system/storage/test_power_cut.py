"""The power goes at a random moment and the disk keeps any mixture of what was not synced: nothing acknowledged is
lost.

After the cut the store must open, hold every message whose flush was acknowledged, whole and in its queue, and take
new ones. What was never acknowledged may be there or not, but never in part.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from power_cut import PowerCutFiles
from random_messages import random_batch
from store_pair import TINY, Clock, Pair, facts

from razzo.storage import FlushMode, Store, StoreSettings

CHANGED = {"flush_mode": FlushMode.SYNC, "consume_queue_file_units": 4, "commit_log_file_bytes": 2048}
LIVES = 25
STEPS = 14


class Life(Pair):
    """A pair over a PowerCutFiles; `acked` counts the messages whose flush was waited for."""

    def __init__(self, root: Path):
        self.files = PowerCutFiles(root)
        self.acked = 0
        often = {"queue_flush_interval_ms": 1, "checkpoint_interval_ms": 1}
        super().__init__(root, Clock(), **CHANGED, **often)

    def _opened(self) -> Store:
        store = Store(self.root, self.settings, clock_ms=self.clock, files=self.files)
        store.attach_loop(self.loop)
        store.open()
        return store

    def step(self, rng: random.Random) -> None:
        kind = rng.choice(["append", "append", "append", "flush", "truncate", "stop"])
        if kind == "append":
            self.append(random_batch(rng))
        elif kind == "flush":
            self.flush()
        elif kind == "truncate":
            self.truncate(rng.choice(self.twin.record_bounds()[-4:]))
        else:
            self.reopen_after_stop()
        if kind != "append":
            self.acked = min(self.acked, len(self.twin.records)) if kind == "truncate" else len(self.twin.records)
        self.clock.now_ms += 1500


@pytest.mark.parametrize("seed", range(LIVES))
def test_acknowledged_messages_survive_a_power_cut(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    life = Life(tmp_path / "store")
    try:
        for number in range(STEPS):
            life.step(rng)
            if rng.random() < 0.4:
                target = tmp_path / f"cut-{number}"
                life.files.cut(rng, target)
                assert_holds(life, target, f"seed {seed}, step {number}")
    finally:
        life.close()
        life.files.release()


def assert_holds(life: Life, target: Path, where: str) -> None:
    """The store as the disk has it: all that was acknowledged, in place; of the rest only whole messages."""
    acked, unsure = life.twin.records[: life.acked], life.twin.records[life.acked :]
    store = Store(target, StoreSettings(**{**TINY, **CHANGED}), clock_ms=life.clock)
    store.open()
    try:
        for record in acked:
            found = store.read_at(record.physical_offset)
            assert found is not None, f"{where}: {record.physical_offset} of {life.twin.end} lost"
            assert facts(found) == facts(record), where
            if (record.topic, record.queue_id) in life.twin.queues and record in life.twin.in_queue(
                record.topic, record.queue_id
            ):
                (queued,) = store.read_offsets(record.topic, record.queue_id, [record.queue_offset])
                assert queued is not None, f"{where}: {record.physical_offset} is in no queue"
                assert facts(queued) == facts(record), where
        for record in unsure:
            found = store.read_at(record.physical_offset)
            assert found is None or bytes(found.body) == record.body, where
        at = store.append([])
        assert at == []
    finally:
        store.close()
