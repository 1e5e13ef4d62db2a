"""One flipped bit, anywhere: the rest is served, the broken record never is, derived files are mended from the log.

A record's body is under a CRC always; its other fields only with the appended CRC property, which is off by default
and is the format's limit, not ours: there the flipped record may come back changed, but must not take anything else
along.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_children import Child, Plan
from store_pair import TINY, Clock, Pair, facts, twin_of
from twin.records import encode_properties, pack_host
from twin.store import Message, TwinStore

from razzo.storage import StoreSettings

NOW_MS = 1_700_000_000_000
FILE_BYTES = 1024
SIZES: dict[str, Any] = {**TINY, "commit_log_file_bytes": FILE_BYTES, "consume_queue_file_units": 4}
RECORDS = 14
FIELDS = {
    "totalSize, high": 0, "totalSize, low": 3, "magic": 4, "bodyCRC": 9, "queueId": 15, "flag": 18, "queueOffset": 27,
    "physicalOffset": 35, "sysFlag": 39, "bornTimestamp": 45, "bornHost": 50, "storeTimestamp": 60, "storeHost": 66,
    "reconsumeTimes": 75, "preparedOffset": 80, "bodyLength": 87, "body": 90, "last of body": 107, "topicLength": 108,
    "topic": 110, "propertiesLength": 115, "properties": 120, "last of properties": -1,
}  # fmt: skip
UNDER_BODY_CRC = {"totalSize, high", "totalSize, low", "magic", "bodyCRC", "bodyLength", "body", "last of body",
                  "topicLength", "propertiesLength"}  # fmt: skip


def message(number: int) -> Message:
    properties = encode_properties(
        {"TAGS": "TagA", "KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}", "pad": "p" * 40}
    )
    body = f"body of message {number:03d}.".encode()
    return Message("Flips", number % 2, body, properties, born_ms=1, born_host=pack_host("10.1.2.3", 40000))


@pytest.fixture(scope="module", params=["clean", "killed"])
def original(request: pytest.FixtureRequest, make_folder: Callable[[], Path]) -> Path:
    """A store of three log files; `killed`: with abort, and everything flushed."""
    root = make_folder() / "store"
    end = [("close",)] if request.param == "clean" else []
    steps = [("open",), *(("append", [message(number)]) for number in range(RECORDS)), *end]
    child = Child(Plan(root, StoreSettings(**SIZES), steps, NOW_MS))
    child.wait_done(len(steps))
    child.kill()
    assert (root / "abort").exists() == (request.param == "killed")
    return root


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    shutil.copytree(original, tmp_path / "store")
    return tmp_path / "store"


def twin() -> TwinStore:
    twin = twin_of(StoreSettings(**SIZES))
    twin.append([message(number) for number in range(RECORDS)], NOW_MS)
    return twin


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.fixture
def opened(root: Path) -> Iterator[Any]:
    """Opens the broken copy; the test breaks it first."""
    pairs: list[Pair] = []

    def open_it() -> Pair:
        pairs.append(Pair(root, Clock(NOW_MS), twin(), **SIZES))
        return pairs[-1]

    yield open_it
    for pair in pairs:
        pair.close()


def in_queues(pair: Pair) -> dict[int, dict[str, Any]]:
    """Every message that queue reads give, by physical offset; reading must always get on."""
    found = {}
    for queue_id in (0, 1):
        low, high = pair.store.queue_range("Flips", queue_id)
        assert (low, high) == pair.twin.queue_range("Flips", queue_id)
        while low < high:
            result = pair.store.read("Flips", queue_id, low)
            assert result.next_offset > low
            found.update({one.physical_offset: facts(one) for one in result.messages})
            low = result.next_offset
    return found


@pytest.mark.parametrize("which", [0, RECORDS - 2], ids=["first", "last but one"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_bit_of_a_record(field: str, which: int, root: Path, opened: Any) -> None:
    broken = twin().records[which]
    at = FIELDS[field] % broken.size
    start = broken.physical_offset - broken.physical_offset % FILE_BYTES
    path = root / "commitlog" / f"{start:020d}"
    flip(path, broken.physical_offset - start + at)
    damaged = path.read_bytes()
    pair = opened()
    assert path.read_bytes()[: len(damaged)] == damaged, "damage is no reason to change the log"
    assert pair.store.max_physical_offset == pair.twin.end
    found = in_queues(pair)
    for record in pair.twin.records:
        alone = pair.store.read_at(record.physical_offset)
        if record != broken:
            assert found[record.physical_offset] == facts(record)
            assert alone is not None
            assert facts(alone) == facts(record)
        elif field in UNDER_BODY_CRC:
            assert alone is None
            assert record.physical_offset not in found
        else:
            assert alone is None or bytes(alone.body) == record.body
    (appended,) = pair.append([message(RECORDS)])
    assert appended.queue_offset == RECORDS // 2


@pytest.mark.parametrize("unit", [0, 3, 6], ids=["first", "end of a file", "last"])
@pytest.mark.parametrize("byte", [0, 7, 8, 11, 12, 19], ids=lambda byte: f"byte {byte}")
def test_a_bit_of_a_queue_unit(unit: int, byte: int, root: Path, opened: Any) -> None:
    """A wrong unit must not lead to a wrong message, lose its neighbours, or shorten the log."""
    path = root / "consumequeue" / "Flips" / "1" / f"{unit // 4 * 80:020d}"
    flip(path, unit % 4 * 20 + byte)
    pair = opened()
    assert pair.store.max_physical_offset == pair.twin.end
    low, high = pair.twin.queue_range("Flips", 1)
    assert pair.store.queue_range("Flips", 1) == (low, high)
    wanted = {record.queue_offset: facts(record) for record in pair.twin.in_queue("Flips", 1)}
    for offset in range(low, high):
        (alone,) = pair.store.read_offsets("Flips", 1, [offset])
        assert alone is None or facts(alone) == wanted[offset]
        assert offset == unit or alone is not None
    for record in pair.twin.records:
        assert facts(pair.store.read_at(record.physical_offset)) == facts(record)


@pytest.mark.parametrize("at", [0, 8, 16, 24, 35, 39, 41, 55, 67, 68 + 20, 68 + 20 + 7, 68 + 20 + 15, 68 + 20 + 19])
def test_a_bit_of_an_index_file(at: int, root: Path, opened: Any) -> None:
    """The index may then miss a key; it may not show another's record, hang, or stop the store from opening."""
    for path in sorted((root / "index").iterdir())[:2]:
        flip(path, at)
    pair = opened()
    for number in range(RECORDS):
        for found in pair.store.query_by_key("Flips", f"k{number}", 10, 0, NOW_MS + 1000):
            assert facts(found) in [facts(record) for record in pair.twin.by_key("Flips", f"k{number}")]
    pair.dirty = True
    pair.check_answers()


@pytest.mark.parametrize("at", [0, 1, 7, 8, 15, 16, 23, 24, 31, 32, 39, 40, 4095])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_bit_of_the_checkpoint(at: int, bit: int, root: Path, opened: Any) -> None:
    """The checkpoint only says where to start looking; a wrong one may cost time, never a message."""
    flip(root / "checkpoint", at, bit)
    pair = opened()
    assert pair.store.max_physical_offset == pair.twin.end
    pair.dirty = True
    pair.check()


@pytest.mark.parametrize("name", ["checkpoint", "index", "consumequeue"])
def test_a_derived_file_is_gone(name: str, root: Path, opened: Any) -> None:
    if name == "checkpoint":
        (root / name).unlink()
    else:
        shutil.rmtree(root / name)
    pair = opened()
    pair.check_queue_files()
    pair.check_answers()
    for number in range(RECORDS):
        pair.check_key("Flips", f"k{number}")
