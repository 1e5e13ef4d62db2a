"""kill -9 at no particular moment.

Every acknowledged message is there, in order, and what else is there was asked for.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from random_messages import random_message
from storage_children import Child, Plan, Step
from store_pair import TINY, Pair
from test_crash_points import assert_one_of, goes_on, possible
from twin.store import Message

from razzo.storage import FlushMode, StoreSettings

NOW_MS = 1_700_000_000_000
SETTINGS = StoreSettings(**{**TINY, "consume_queue_file_units": 3, "flush_mode": FlushMode.SYNC})
APPENDS_MAX = 3_000
DEATHS = 3


def plan_steps(rng: random.Random, count: int) -> list[Step]:
    kinds = [[random_message(rng) for _ in range(rng.randrange(1, 5))] for _ in range(50)]
    return [("open",), *(("append", kinds[number % len(kinds)]) for number in range(count))]


@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_messages_survive_a_kill(seed: int, tmp_path: Path) -> None:
    """The same store is killed several times over, each time after another number of acknowledgements."""
    rng = random.Random(seed)
    root, lived = tmp_path / "store", []
    for _ in range(DEATHS):
        steps = plan_steps(rng, APPENDS_MAX)
        child = Child(Plan(root, SETTINGS, steps, NOW_MS))
        child.wait_done(rng.randrange(2, 60))
        child.kill()
        pair = Pair(root, consume_queue_file_units=3, flush_mode=FlushMode.SYNC)
        try:
            before = len(lived)
            assert_one_of(pair, possible(lived + steps, before + child.done, before + child.begun))
            lived = taken(lived, steps, child, len(pair.twin.records))
        finally:
            pair.close()
    pair = Pair(root, consume_queue_file_units=3, flush_mode=FlushMode.SYNC)
    try:
        assert_one_of(pair, possible(lived, len(lived), len(lived)))
        goes_on(pair)
    finally:
        pair.close()


def taken(lived: list[Step], steps: list[Step], child: Child, records: int) -> list[Step]:
    """The steps that count so far: those done, and of the one under way as many messages as were found."""
    whole = lived + steps[: child.done]
    rest = records - sum(len(step[1]) for step in whole if step[0] == "append")
    assert rest >= 0
    under_way: list[Message] = steps[child.done][1][:rest] if rest else []
    return [*whole, ("append", under_way)] if under_way else whole
