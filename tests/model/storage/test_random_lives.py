"""Random lives of a Store, each from one seed, with the twin beside it.

The files are tiny, so that everything rolls on the third message. A failing run prints the steps it took; the same seed
takes the same steps again. RAZZO_MODEL_SEEDS (a number, or from:to) asks for other or more seeds than the gate's.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from random_messages import KEYS, QUEUES, TAGS, TOPICS, random_batch
from store_pair import Clock, Pair

from razzo.storage import FlushMode

STEPS = 30
GATE_SEEDS = "0:40"


def seeds() -> range:
    asked = os.environ.get("RAZZO_MODEL_SEEDS", GATE_SEEDS)
    first, _, end = asked.partition(":")
    return range(int(first), int(end or int(first) + 1))


class Life:
    """One run: which steps there are, how often each comes, and what was done so far."""

    def __init__(self, seed: int, folder: Path):
        self.rng = rng = random.Random(seed)
        self.folder, self.roots, self.done = folder, 0, [f"seed {seed}"]
        self.sync = rng.random() < 0.25
        self.pair = Pair(
            self.next_root(),
            Clock(),
            commit_log_file_bytes=rng.choice([1024, 1500, 4096]),
            consume_queue_file_units=rng.choice([1, 3, 5, 16]),
            index_units=rng.choice([2, 9, 50]),
            append_crc_property=rng.random() < 0.25,
            flush_mode=FlushMode.SYNC if self.sync else FlushMode.ASYNC,
            store_host=rng.choice([("192.168.1.10", 10911), ("fe80::1", 10911)]),
        )
        self.steps = {
            self.append: 10, self.read: 6, self.look_up_key: 3, self.look_up_time: 3, self.truncate: 1,
            self.drop_topic: 1, self.retain: 1, self.stop_and_open: 1, self.kill_and_open: 1, self.check: 2,
        }  # fmt: skip

    def next_root(self) -> Path:
        self.roots += 1
        return self.folder / f"store-{self.roots}"

    def run(self) -> None:
        weights = list(self.steps.values())
        for _ in range(STEPS):
            step = self.rng.choices(list(self.steps), weights)[0]
            self.pair.clock.now_ms += self.rng.choice([0, 0, 1, 700, 1000, 60_000])
            self.done.append(step.__name__)
            step()
        self.check()
        self.stop_and_open()
        self.check()

    def note(self, text: object) -> None:
        self.done[-1] += f" {text}"

    # -- steps --------------------------------------------------------------------------------------------------------

    def append(self) -> None:
        batch = random_batch(self.rng)
        records = self.pair.append(batch)
        self.note([(r.topic[:8], r.queue_id, r.queue_offset, r.physical_offset, r.size) for r in records])
        if self.sync:
            self.pair.flush()

    def read(self) -> None:
        topic, queue_id = self.rng.choice(TOPICS), self.rng.choice(QUEUES)
        low, high = self.pair.twin.queue_range(topic, queue_id)
        offset = self.rng.choice([low, high - 1, high, high + 1, 0, self.rng.randint(low, high)])
        tags = self.rng.choice([None, None, self.pair.twin.tags_of(*self.rng.sample(TAGS, 2)), frozenset({12345})])
        count, size = self.rng.choice([1, 2, 32]), self.rng.choice([1, 500, 1 << 18])
        self.note((topic, queue_id, offset, count, size, tags))
        self.pair.check_read(topic, queue_id, max(0, offset), None, count, size, tags)

    def look_up_key(self) -> None:
        topic, key = self.rng.choice(TOPICS), self.rng.choice([*KEYS, "nobody's"])
        self.note((topic, key))
        self.pair.check_key(topic, key)

    def look_up_time(self) -> None:
        if not self.pair.twin.queues:
            return
        topic, queue_id = self.rng.choice(sorted(self.pair.twin.queues))
        stamps = [record.store_ms for record in self.pair.twin.records] or [0]
        timestamp_ms = self.rng.choice(stamps) + self.rng.choice([0, 0, -1, 1, 10**9, -(10**9)])
        upper = self.rng.random() < 0.5
        self.note((topic, queue_id, timestamp_ms, upper))
        right = self.pair.twin.offset_by_time(topic, queue_id, timestamp_ms, upper)
        assert self.pair.store.offset_by_time(topic, queue_id, timestamp_ms, upper) == right

    def truncate(self) -> None:
        offset = self.rng.choice(self.pair.twin.record_bounds()[-6:])
        self.note(offset)
        self.pair.truncate(offset)
        self.pair.check()

    def drop_topic(self) -> None:
        topic = self.rng.choice(TOPICS)
        self.note(topic)
        self.pair.drop_topic(topic)
        assert not (self.pair.root / "consumequeue" / topic).exists()

    def retain(self) -> None:
        files = self.rng.randrange(3)
        self.note(files)
        self.pair.retain(files)
        self.pair.check()

    def stop_and_open(self) -> None:
        self.pair.reopen_after_stop()
        self.pair.check()

    def kill_and_open(self) -> None:
        self.pair.reopen_after_kill(self.next_root())
        self.pair.check()

    def check(self) -> None:
        self.pair.check()


@pytest.fixture
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    life = Life(request.param, tmp_path)
    yield life
    life.pair.close()


@pytest.mark.parametrize("life", seeds(), indirect=True)
def test_a_store_lives_like_its_twin(life: Life) -> None:
    try:
        life.run()
    except BaseException as failure:
        failure.add_note("steps:\n  " + "\n  ".join(life.done))
        raise
