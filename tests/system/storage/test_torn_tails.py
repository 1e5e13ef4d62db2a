"""The last record was half on disk when the power went: at every length it is cut, whole, and nothing else is."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from random_messages import random_message
from storage_children import Child, Plan, Step
from store_pair import TINY, Clock, Pair, twin_of
from test_crash_points import tear
from twin.store import Message, TwinStore

from razzo.storage import StoreSettings

NOW_MS = 1_700_000_000_000
SETTINGS = StoreSettings(**{**TINY, "commit_log_file_bytes": 2048, "flush_interval_ms": 3_600_000})
PLACES = {"alone": (1, 0, 5), "in the first file": (2, 3, 5), "in a later file": (3, 12, 1)}
"""Where the last record stands: (seed, records before it, step between the lengths tried)."""
LAST = Message("T", 0, b"the last of all", b"TAGS\x01TagA\x02KEYS\x01key-of-the-last\x02", born_ms=1)


def steps(seed: int, count: int) -> list[Step]:
    rng = random.Random(seed)
    return [("open",), *(("append", [random_message(rng)]) for _ in range(count)), ("append", [LAST])]


def twin_after(plan: list[Step]) -> TwinStore:
    twin = twin_of(SETTINGS)
    for step in plan[1:]:
        twin.append(step[1], NOW_MS)
    return twin


@pytest.fixture(scope="module", params=PLACES)
def killed(request: pytest.FixtureRequest, make_folder: Callable[[], Path]) -> tuple[Path, TwinStore, int]:
    """A killed store and its twin; its checkpoint is gone, as after a power cut before the first one."""
    root = make_folder() / "store"
    seed, count, stride = PLACES[request.param]
    plan = steps(seed, count)
    child = Child(Plan(root, SETTINGS, plan, NOW_MS))
    child.wait_done(len(plan))
    child.kill()
    (root / "checkpoint").unlink(missing_ok=True)
    return root, twin_after(plan), stride


def test_every_length(killed: tuple[Path, TwinStore, int], tmp_path: Path) -> None:
    root, twin, stride = killed
    last = twin.records[-1]
    start = last.physical_offset - last.physical_offset % SETTINGS.commit_log_file_bytes
    for kept in {*range(0, last.size + 1, stride), last.size}:
        copy = tmp_path / f"kept-{kept}"
        shutil.copytree(root, copy)
        tear(copy / "commitlog" / f"{start:020d}", last.physical_offset - start + kept, last.size - kept)
        pair = Pair(copy, Clock(NOW_MS), twin_after_cut(twin, kept), commit_log_file_bytes=2048)
        try:
            assert pair.store.max_physical_offset == pair.twin.end, f"{kept} of {last.size} bytes kept"
            pair.dirty = True
            pair.check()
            if kept % 16 == 0:
                pair.append([LAST, LAST])
                pair.reopen_after_stop()
                pair.check()
        finally:
            pair.close()
        shutil.rmtree(copy)


def twin_after_cut(twin: TwinStore, kept: int) -> TwinStore:
    """The last record stays only when every byte of it did; its own last byte is not zero."""
    cut = TwinStore(
        twin.file_bytes, twin.queue_file_units, twin.index_slots, twin.index_units, twin.store_host, twin.crc_property
    )
    records = twin.records if kept == twin.records[-1].size else twin.records[:-1]
    for record in records:
        cut.append([_message(record)], record.store_ms)
    if len(records) < len(twin.records):
        cut.end = twin.records[-1].physical_offset
    return cut


def _message(record: object) -> Message:
    return Message(**{name: getattr(record, name) for name in Message._fields})
