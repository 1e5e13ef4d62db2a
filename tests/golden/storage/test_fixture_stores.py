"""The fixture stores of store-and-semantics.md 21.6, made by the twin, opened by Razzo.

Where Apache loses messages over a directory (D, D2, E, F, G2, K in the note), Razzo must not: the log is the truth.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_vectors import INPUT, PROPERTIES, STORE_HOST, input_record, long_topic
from store_pair import facts, same
from twin.key_index import encode_checkpoint
from twin.queues import FILLER, Unit, encode_unit
from twin.records import Record, blank, decode, encode, pack_host, tag_code

from razzo.storage import CorruptStore, FlushMode, Store, StoreSettings

FILE_BYTES = 1 << 20
QUEUE_UNITS = 1000
SLOTS, INDEX_UNITS = 100, 400
SETTINGS = StoreSettings(
    commit_log_file_bytes=FILE_BYTES,
    consume_queue_file_units=QUEUE_UNITS,
    index_slots=SLOTS,
    index_units=INDEX_UNITS,
    flush_mode=FlushMode.ASYNC,
)
NAME = "0" * 20


class Fixture:
    """A store directory under construction: `place` puts records one after the other, `write` makes the files."""

    def __init__(self, root: Path, start: int = 0):
        self.root, self.start, self.end = root, start, start
        self.log = bytearray(FILE_BYTES)
        self.records: list[Record] = []

    def place(self, crc_property: bool = False, **changed: Any) -> Record:
        draft = input_record(physical_offset=self.end, **changed)
        data = encode(draft, crc_property)
        at = self.end - self.start
        self.log[at : at + len(data)] = data
        self.records.append(decode(data, 0))
        self.end += len(data)
        return self.records[-1]

    def write(self, *, abort: bool) -> None:
        folder = self.root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.start:020d}").write_bytes(self.log)
        if abort:
            (self.root / "abort").write_text("1")

    def write_queue(self, units: list[Unit], topic: str = "TopicTest", queue_id: int = 3) -> None:
        folder = self.root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        data = b"".join(encode_unit(unit) for unit in units)
        (folder / NAME).write_bytes(data.ljust(QUEUE_UNITS * 20, b"\0"))

    def write_checkpoint(self) -> None:
        (self.root / "checkpoint").write_bytes(encode_checkpoint(INPUT["store_ms"], INPUT["store_ms"]))

    def units(self) -> list[Unit]:
        return [Unit(record.physical_offset, record.size, tag_code(record)) for record in self.records]


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    """Three records of one queue, as in the note."""
    made = Fixture(tmp_path)
    for number in range(3):
        made.place(queue_offset=number)
    return made


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def open_it() -> Store:
        stores.append(Store(tmp_path, SETTINGS))
        stores[-1].open()
        return stores[-1]

    yield open_it
    for store in stores:
        store.close()


def assert_serves(store: Store, records: list[Record], first: int = 0) -> None:
    """All records: by queue from `first` (and from 0, wherever that leads), by place and by both keys."""
    low, high = store.queue_range("TopicTest", 3)
    assert high == first + len(records)
    assert low <= first
    for start in (first, 0):
        got, at = [], start
        while at < high:
            result = store.read("TopicTest", 3, at)
            assert result.next_offset > at
            got += result.messages
            at = result.next_offset
        assert [facts(message) for message in got] == [facts(record) for record in records]
    for record in records:
        same(store.read_at(record.physical_offset), record)
    places = {record.physical_offset for record in records}
    for key in ("order-1001", INPUT["properties"]["UNIQ_KEY"]):
        assert {one.physical_offset for one in store.query_by_key("TopicTest", key, 10, 0, 1 << 50)} == places


def test_a_complete(fixture: Fixture, opened: Callable[[], Store], tmp_path: Path) -> None:
    """Complete with queue, index and checkpoint, made by Razzo from the bare log, stopped cleanly, opened again."""
    fixture.write(abort=True)
    opened().close()
    assert not (tmp_path / "abort").exists()
    assert_serves(opened(), fixture.records)


@pytest.mark.parametrize("abort", [False, True], ids=["B clean", "C abort"])
def test_b_c_log_only(fixture: Fixture, opened: Callable[[], Store], abort: bool) -> None:
    fixture.write(abort=abort)
    assert_serves(opened(), fixture.records)


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
@pytest.mark.parametrize("present", [2, 1, 0], ids=["D lacks one", "D2 lacks two", "empty queue"])
def test_d_queue_lacks_units(fixture: Fixture, opened: Callable[[], Store], present: int, abort: bool) -> None:
    """Apache loses the first missing record without `abort`; we dispatch from the queues' end on, the end included."""
    fixture.write(abort=abort)
    fixture.write_queue(fixture.units()[:present])
    fixture.write_checkpoint()
    assert_serves(opened(), fixture.records)


def test_e_a_queue_of_filler_only(fixture: Fixture, opened: Callable[[], Store]) -> None:
    """Filler says 2147483647 to Apache's recovery, which then dispatches nothing below 2 GiB."""
    fixture.write(abort=False)
    fixture.write_queue([FILLER] * 5, queue_id=9)
    fixture.write_queue(fixture.units()[:1])
    assert_serves(opened(), fixture.records)


@pytest.mark.parametrize("prefix", [FILLER, Unit(0, 0, 0)], ids=["F filler", "G2 zeros"])
@pytest.mark.parametrize("start", [0, FILE_BYTES], ids=["log from 0", "G log from 1 MiB"])
@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
def test_f_g_queue_starts_above_zero(
    opened: Callable[[], Store], tmp_path: Path, prefix: Unit, start: int, abort: bool
) -> None:
    """A queue whose first message has offset 5: nothing is skipped, wherever the reader starts."""
    fixture = Fixture(tmp_path, start)
    for number in range(3):
        fixture.place(queue_offset=5 + number)
    fixture.write(abort=abort)
    fixture.write_queue([prefix] * 5 + fixture.units())
    fixture.write_checkpoint()
    store = opened()
    assert store.queue_range("TopicTest", 3) == (5, 8)
    assert store.read("TopicTest", 3, 0).next_offset == 5
    got = store.read("TopicTest", 3, 5)
    assert [facts(message) for message in got.messages] == [facts(record) for record in fixture.records]


def test_f2_queue_above_zero_from_the_log_alone(opened: Callable[[], Store], tmp_path: Path) -> None:
    """Filler goes before the first unit, as Apache's code writes it."""
    fixture = Fixture(tmp_path)
    record = fixture.place(queue_offset=5)
    fixture.write(abort=True)
    store = opened()
    assert store.queue_range("TopicTest", 3) == (5, 6)
    store.close()
    data = (tmp_path / "consumequeue" / "TopicTest" / "3" / NAME).read_bytes()
    assert data[:120] == encode_unit(FILLER) * 5 + encode_unit(Unit(0, record.size, tag_code(record)))


def test_j_ipv6_and_long_topic(opened: Callable[[], Store], tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    born, stored = pack_host("2001:db8::1", 40000), pack_host("fe80::1", 10911)
    records = [
        fixture.place(topic=long_topic(), queue_id=0, born_host=born),
        fixture.place(topic=long_topic(), queue_id=0, queue_offset=1, born_host=born, store_host=stored),
        fixture.place(topic=long_topic(), queue_id=0, queue_offset=2, body=b"", properties=b""),
    ]
    fixture.write(abort=False)
    got = opened().read(long_topic(), 0, 0).messages
    assert [facts(message) for message in got] == [facts(record) for record in records]


def test_k_damage_in_the_middle(fixture: Fixture, opened: Callable[[], Store]) -> None:
    """A flipped body bit in record 2.

    Apache cuts the log there; we keep it, refuse that record and serve the others.
    """
    fixture.log[182 + 88] ^= 1
    fixture.write(abort=True)
    store = opened()
    assert store.max_physical_offset == fixture.end
    assert store.read_at(182) is None
    got, at = [], 0
    while at < 3:
        result = store.read("TopicTest", 3, at)
        assert result.next_offset > at
        got += result.messages
        at = result.next_offset
    assert [message.queue_offset for message in got] == [0, 2]


def test_l_marker_and_second_file(opened: Callable[[], Store], tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    first = fixture.place()
    fixture.log[fixture.end : fixture.end + 8] = blank(FILE_BYTES - fixture.end)
    fixture.write(abort=False)
    second = Fixture(tmp_path, FILE_BYTES)
    second.place(queue_offset=1)
    second.write(abort=False)
    store = opened()
    assert_serves(store, [first, *second.records])
    assert store.max_physical_offset == second.end


def test_m_crc_property(opened: Callable[[], Store], tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    for number in range(3):
        fixture.place(crc_property=True, queue_offset=number, properties=PROPERTIES)
    fixture.write(abort=True)
    assert_serves(opened(), fixture.records)


def test_n_short_log_file(fixture: Fixture, opened: Callable[[], Store], tmp_path: Path) -> None:
    """A log file of a wrong length is refused by name, and nothing is changed."""
    fixture.write(abort=False)
    path = tmp_path / "commitlog" / NAME
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptStore, match=NAME):
        opened()
    assert path.stat().st_size == FILE_BYTES - 1


def test_o_short_queue_file(fixture: Fixture, opened: Callable[[], Store], tmp_path: Path) -> None:
    """A queue is derived: one of a wrong length is made anew. Apache refuses to start."""
    fixture.write(abort=False)
    fixture.write_queue(fixture.units())
    path = tmp_path / "consumequeue" / "TopicTest" / "3" / NAME
    path.write_bytes(path.read_bytes()[:-7])
    assert_serves(opened(), fixture.records)


def test_p_stray_file(fixture: Fixture, opened: Callable[[], Store], tmp_path: Path) -> None:
    fixture.write(abort=False)
    stray = tmp_path / "commitlog" / ".DS_Store"
    stray.write_bytes(b"x")
    with pytest.raises(CorruptStore, match="DS_Store"):
        opened()
    stray.unlink()
    assert_serves(opened(), fixture.records)


def test_a_gap_between_log_files(fixture: Fixture, opened: Callable[[], Store], tmp_path: Path) -> None:
    fixture.write(abort=False)
    (tmp_path / "commitlog" / f"{2 * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    with pytest.raises(CorruptStore):
        opened()


def test_preallocated_files_behind_the_end(fixture: Fixture, opened: Callable[[], Store], tmp_path: Path) -> None:
    """What a killed Apache leaves: a zeroed next file, and one it had only begun (0.2.3)."""
    fixture.write(abort=True)
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    (tmp_path / "commitlog" / f"{2 * FILE_BYTES:020d}").write_bytes(b"")
    store = opened()
    assert_serves(store, fixture.records)
    assert store.max_physical_offset == fixture.end


def test_rocksdb_queues_are_ignored(fixture: Fixture, opened: Callable[[], Store], tmp_path: Path) -> None:
    """storeType=defaultRocksDB leaves a database in consumequeue/: not ours to read, the log has everything (0.2.7)."""
    fixture.write(abort=True)
    folder = tmp_path / "consumequeue"
    folder.mkdir()
    for name in ("CURRENT", "MANIFEST-000013", "000012.sst"):
        (folder / name).write_bytes(b"rocks")
    assert_serves(opened(), fixture.records)
    assert (folder / "CURRENT").read_bytes() == b"rocks"


def test_the_store_host_is_the_records_own(fixture: Fixture, opened: Callable[[], Store]) -> None:
    """A store moved to another address keeps its old ids (16.2)."""
    fixture.write(abort=False)
    found = opened().read_at(0)
    assert found is not None
    assert found.offset_message_id == (STORE_HOST + struct.pack(">q", 0)).hex().upper()
