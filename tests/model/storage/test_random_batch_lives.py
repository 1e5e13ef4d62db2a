"""Random lives of a Store with topics of inner batches, beside a plain list of what must be there.

Each life mixes batches of two topics with ordinary messages of a third, cuts, stops, kills, loses derived files and
lets old log files expire. RAZZO_MODEL_SEEDS as in test_random_lives.py.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from razzo.storage import FlushMode, NewMessage, ReadStatus, Store, StoreSettings, inner_batch, tag_hash, unwrap

STEPS = 40
GATE_SEEDS = "0:25"
TOPICS = ("batches", "more batches")
ORDINARY = "ordinary"


def seeds() -> range:
    first, _, end = os.environ.get("RAZZO_MODEL_SEEDS", GATE_SEEDS).partition(":")
    return range(int(first), int(end or int(first) + 1))


class Kept(NamedTuple):
    """One record: where it is, its topic and tag, and its messages with the first one's queue offset."""

    place: int
    topic: str
    tag: str
    store_ms: int
    base: int
    bodies: list[bytes]


class BatchLife:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.root = folder / "store"
        self.now_ms = 1_700_000_000_000
        self.settings = StoreSettings(
            commit_log_file_bytes=rng.choice([1024, 1500, 4096]), consume_queue_file_units=rng.choice([1, 2, 3, 7]),
            index_slots=11, index_units=rng.choice([3, 9, 50]), populate_ahead_bytes=256, populate_step_bytes=64,
            queue_reserve_units=1, index_reserve_units=2, flush_mode=FlushMode.ASYNC, delete_hour=0,
            disk_max_used_percent=1, disk_clean_forcibly_percent=100, disk_full_percent=100, delete_batch_files_max=1,
            append_crc_property=rng.random() < 0.3,
        )  # fmt: skip
        self.kept: list[Kept] = []
        self.next = dict.fromkeys((*TOPICS, ORDINARY), 0)
        self.store = self.open()

    def open(self) -> Store:
        store = Store(self.root, self.settings, clock_ms=lambda: self.now_ms)
        store.open()
        return store

    def open_again(self) -> None:
        self.store = self.open()
        for topic in TOPICS:
            # Only units tell where the numbers of such a queue stand: after the last one has gone they begin anew.
            if not self.of(topic) and self.store.queue_range(topic, 0) == (0, 0):
                self.next[topic] = 0

    def run(self) -> None:
        steps = {self.append: 12, self.read: 6, self.cut: 1, self.stop: 1, self.kill: 2, self.expire: 1, self.check: 1}
        for _ in range(STEPS):
            self.now_ms += self.rng.choice([0, 0, 1, 1000])
            self.rng.choices(list(steps), list(steps.values()))[0]()
        self.check()

    # --- steps

    def append(self) -> None:
        made: list[tuple[NewMessage, str, list[bytes]]] = []
        for _ in range(self.rng.randrange(1, 6)):
            topic, tag = self.rng.choice((*TOPICS, ORDINARY)), self.rng.choice("AB")
            bodies = [self.rng.randbytes(self.rng.randrange(12)) for _ in range(self.rng.choice([1, 1, 2, 5, 12]))]
            properties = f"UNIQ_KEY\x01u{len(self.kept) + len(made)}\x02TAGS\x01{tag}\x02".encode()
            if topic == ORDINARY:
                del bodies[1:]
                made.append((NewMessage(topic, 0, bodies[0], properties), tag, bodies))
            else:
                made.append((inner_batch(NewMessage(topic, 0, b"".join(map(item, bodies)), properties)), tag, bodies))
        for one, (new, tag, bodies) in zip(self.store.append([new for new, _, _ in made]), made, strict=True):
            assert one.queue_offset == self.next[new.topic]
            self.kept.append(Kept(one.physical_offset, new.topic, tag, one.store_ms, one.queue_offset, bodies))
            self.next[new.topic] += len(bodies)

    def cut(self) -> None:
        if self.kept:
            at = self.rng.randrange(len(self.kept))
            self.store.truncate(self.kept[at].place)
            for record in reversed(self.kept[at:]):
                self.next[record.topic] = record.base
            del self.kept[at:]

    def stop(self) -> None:
        self.store.close()
        self.open_again()

    def kill(self) -> None:
        """What a kill leaves, perhaps without a derived folder."""
        checkpoint = (self.root / "checkpoint").read_bytes()
        self.store.close()
        (self.root / "abort").write_text("1")
        (self.root / "checkpoint").write_bytes(checkpoint)
        lost = self.rng.choice(["batchconsumequeue", "consumequeue", "index", None])
        # A queue whose records have all expired cannot be counted on from the log alone.
        if lost and (self.root / lost).exists() and all(self.of(topic) or not self.next[topic] for topic in self.next):
            shutil.rmtree(self.root / lost)
        self.open_again()

    def expire(self) -> None:
        # The oldest file may go once all of it is on disk.
        self.stop()
        self.store.run_retention(1 << 45)
        self.kept = [record for record in self.kept if record.place >= self.store.min_physical_offset]

    def read(self) -> None:
        topic = self.rng.choice((*TOPICS, ORDINARY))
        records = self.of(topic)
        if not records:
            return
        offset = self.rng.randrange(records[0].base, self.next[topic])
        tag = self.rng.choice([None, "A", "B"])
        count = self.rng.randrange(1, 5)
        result = self.store.read(topic, 0, offset, count, tag_hashes=tag and frozenset({tag_hash(tag)}))
        behind = [record for record in records if record.base + len(record.bodies) > offset]
        wanted = [record for record in behind if tag in (None, record.tag)]
        assert [message.physical_offset for message in result.messages] == [record.place for record in wanted[:count]]
        assert result.status is (ReadStatus.FOUND if wanted else ReadStatus.NO_MATCHED_MESSAGE)
        following = wanted[count].base if len(wanted) > count else self.next[topic]
        assert result.messages == [] or result.next_offset <= following
        (single,) = self.store.read_offsets(topic, 0, [offset])
        assert single is not None
        assert single.physical_offset == behind[0].place
        at_ms = self.rng.choice(records).store_ms + self.rng.choice([-1, 0, 1])
        newer = [record.base for record in records if record.store_ms >= at_ms]
        assert self.store.offset_by_time(topic, 0, at_ms) == (newer[0] if newer else self.next[topic])

    def check(self) -> None:
        for topic in self.next:
            records = self.of(topic)
            first = records[0].base if records else self.next[topic]
            assert self.store.queue_range(topic, 0) == (first, self.next[topic])
            if records:
                stored = self.store.read(topic, 0, first, 4096).messages
                assert [(batch.queue_offset, [one.body for one in unwrap(batch)]) for batch in stored] == [
                    (record.base, record.bodies) for record in records
                ]

    def of(self, topic: str) -> list[Kept]:
        return [record for record in self.kept if record.topic == topic]


def item(body: bytes) -> bytes:
    head = b"".join(number.to_bytes(4, "big") for number in (22 + len(body), 0, 0, 0, len(body)))
    return head + body + b"\0\0"


@pytest.mark.parametrize("seed", seeds())
def test_a_life(seed: int, tmp_path: Path) -> None:
    life = BatchLife(seed, tmp_path)
    try:
        life.run()
    finally:
        life.store.close()
