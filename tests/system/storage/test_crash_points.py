"""A process ends at each named crash point; what it had acknowledged must be there, and the store must go on.

One plan reaches every point. The parent replays the plan on a twin: all steps that were done, and of the step under way
either nothing or a sound beginning (a prefix of a batch; the old or the new end; the old or the new configuration).
"""

from __future__ import annotations

import copy
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_messages import random_message
from storage_children import CRASHED, Child, Plan, Step
from store_pair import TINY, Clock, Pair, twin_of
from twin.store import Message, TwinStore

from razzo.storage import FlushMode, StoreSettings
from razzo.storage.files import CRASH_POINTS

SEED = 4
NOW_MS = 1_700_000_000_000
DROPPED_TOPIC = "Dropped"
CHANGED = {"consume_queue_file_units": 3, "flush_mode": FlushMode.SYNC}
SETTINGS = StoreSettings(**{**TINY, **CHANGED})
OFTEN = replace(SETTINGS, queue_flush_interval_ms=1, checkpoint_interval_ms=1)
"""For the children: the background flushes come in the middle of the plan, not after it."""
AFTER_RECOVERY = {point for point in CRASH_POINTS if point.startswith("recovery.")}
FIRST_CONFIG, SECOND_CONFIG = {"version": 1, "text": "é" * 300}, {"version": 2}


def retention_ms() -> int:
    """A moment at which every file of today is long expired and the hour is the one of deletion."""
    far = time.localtime(time.time() + 40 * 86_400)
    return int(time.mktime((far.tm_year, far.tm_mon, far.tm_mday, SETTINGS.delete_hour, 30, 0, 0, 0, -1))) * 1000


def batches(rng: random.Random, topics: list[str]) -> Iterator[list[Message]]:
    while True:
        yield [
            random_message(rng)._replace(topic=rng.choice(topics), queue_id=rng.randrange(2))
            for _ in range(rng.randrange(1, 5))
        ]


def whole_plan() -> list[Step]:
    """Steps that roll every kind of file and reach every crash point but those of recovery."""
    rng = random.Random(SEED)
    source = batches(rng, ["Orders", DROPPED_TOPIC, "T"])
    steps: list[Step] = [
        ("open",),
        *(("append", next(source)) for _ in range(6)),
        ("save_config", "topics", FIRST_CONFIG),
    ]
    steps += [("append", next(source)), ("truncate", _bound(steps, -4)), ("append", next(source))]
    steps += [("delete_topic", DROPPED_TOPIC)]
    rest = batches(rng, ["Orders", "T"])
    steps += [*(("append", next(rest)) for _ in range(3)), ("save_config", "topics", SECOND_CONFIG)]
    steps += [
        ("retain", retention_ms()),
        ("append", next(rest)),
        ("close",),
        ("open",),
        ("append", next(rest)),
        ("close",),
    ]
    return steps


def _bound(steps: list[Step], number: int) -> int:
    """The offset of one of the last records these steps leave."""
    return after(steps).record_bounds()[number]


def after(steps: list[Step], twin: TwinStore | None = None) -> TwinStore:
    """A twin after these steps; retention is left out, the parent sees what it did."""
    twin = twin or twin_of(SETTINGS)
    for kind, *more in steps:
        if kind == "append":
            twin.append(more[0], NOW_MS)
        elif kind == "truncate":
            twin.truncate(more[0])
        elif kind == "delete_topic":
            twin.drop_topic(more[0])
    return twin


def possible(steps: list[Step], done: int, begun: int) -> list[TwinStore]:
    """Every state a crash in the step under way may leave."""
    base = after(steps[:done])
    states = [base]
    if begun > done:
        kind, *more = steps[done]
        if kind == "append":
            states += [
                after([("append", more[0][:count])], copy.deepcopy(base)) for count in range(1, len(more[0]) + 1)
            ]
        elif kind in ("truncate", "delete_topic"):
            states.append(after([steps[done]], copy.deepcopy(base)))
    return states


def assert_one_of(pair: Pair, states: list[TwinStore]) -> None:
    """The store is in exactly one of these states, in every file and every answer."""
    low = pair.store.min_physical_offset
    for state in states:
        state.retain_from(low)
    fitting = [
        state
        for state in states
        if state.end == pair.store.max_physical_offset and state.topics() == sorted(pair.store.topics())
    ]
    assert fitting, (
        f"ends at {pair.store.max_physical_offset} with {pair.store.topics()}; "
        f"possible: {[(state.end, state.topics()) for state in states]}"
    )
    pair.twin, pair.dirty = fitting[-1], True
    pair.check()


def goes_on(pair: Pair) -> None:
    """The recovered store takes messages, stops cleanly, and opens with all of them."""
    source = batches(random.Random(SEED + 1), ["Orders", "T"])
    for _ in range(3):
        pair.append(next(source))
        pair.flush()
    pair.reopen_after_stop()
    pair.check()


def reopened(root: Path) -> Pair:
    return Pair(root, Clock(NOW_MS), **CHANGED)


CASES = [(point, count) for point in sorted(CRASH_POINTS - AFTER_RECOVERY) for count in (1, 2)]


@pytest.mark.parametrize(("point", "count"), CASES, ids=lambda value: str(value))
def test_acknowledged_messages_survive_a_crash(point: str, count: int, tmp_path: Path) -> None:
    steps = whole_plan()
    child = Child(Plan(tmp_path / "store", OFTEN, steps, NOW_MS, crash=(point, count)))
    code = child.end()
    if code == 0:
        assert count > 1, f"the plan never reaches {point}"
    else:
        assert code == CRASHED
    pair = reopened(tmp_path / "store")
    try:
        assert_one_of(pair, possible(steps, child.done, child.begun))
        assert_config(pair, steps, child)
        goes_on(pair)
    finally:
        pair.close()


def assert_config(pair: Pair, steps: list[Step], child: Child) -> None:
    """The configuration is the last saved one, or the one that was being saved; never half of either."""
    saved: list[Any] = [None] + [step[2] for step in steps[: child.done] if step[0] == "save_config"]
    allowed = [saved[-1]]
    if child.begun > child.done and steps[child.done][0] == "save_config":
        allowed.append(steps[child.done][2])
    assert pair.store.load_config("topics") in allowed


@pytest.fixture(scope="module")
def killed_root(make_folder: Callable[[], Path]) -> Path:
    """A store whose process was killed after its last append, with half a record behind its end."""
    root = make_folder() / "store"
    steps = appends_only()
    child = Child(Plan(root, SETTINGS, [*steps, ("append", [Message("T", 0, b"last", b"")])], NOW_MS))
    child.wait_done(len(steps) + 1)
    child.kill()
    return root


def appends_only() -> list[Step]:
    source = batches(random.Random(SEED), ["Orders", "T"])
    return [("open",), *(("append", next(source)) for _ in range(8))]


@pytest.mark.parametrize("point", sorted(AFTER_RECOVERY))
def test_recovery_may_be_interrupted(point: str, killed_root: Path, tmp_path: Path) -> None:
    """Recovery that dies half way is done again: nothing it did before may mislead the next one."""
    root = tmp_path / "store"
    shutil.copytree(killed_root, root)
    twin = after([*appends_only(), ("append", [Message("T", 0, b"last", b"")])])
    last = twin.records[-1]
    path = root / "commitlog" / f"{last.physical_offset - last.physical_offset % SETTINGS.commit_log_file_bytes:020d}"
    tear(path, last.physical_offset % SETTINGS.commit_log_file_bytes + 20, last.size - 20)
    (root / "checkpoint").write_bytes(bytes(4096))
    child = Child(Plan(root, replace(SETTINGS), [("open",)], NOW_MS, crash=(point, 1)))
    assert child.end() == CRASHED, f"recovery never reaches {point}"
    pair = reopened(root)
    try:
        twin.truncate(last.physical_offset)
        assert_one_of(pair, [twin])
        goes_on(pair)
    finally:
        pair.close()


def tear(path: Path, at: int, size: int) -> None:
    """Zeros where the disk never got the bytes."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))
