"""razzo.storage against the golden vectors.

The same inputs through the Store's face, the files' bytes at the other end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_vectors import (
    BORN_HOST,
    INPUT,
    PROPERTIES,
    VECTORS,
    assert_parts,
    long_topic,
    unhex,
)
from twin.records import encode_properties, pack_host

from razzo.storage import (
    FlushMode,
    NewMessage,
    Store,
    StoreSettings,
    offset_message_id,
    parse_offset_message_id,
    tag_hash,
)

FIRST_FILE = "00000000000000000000"
Opener = Callable[..., Store]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Opener]:
    """Opens a Store under tmp_path whose clock stands at the vectors' store time."""
    stores: list[Store] = []

    def open_one(**changed: Any) -> Store:
        settings = {
            "commit_log_file_bytes": 1 << 16,
            "consume_queue_file_units": 1000,
            "index_slots": 100,
            "index_units": 400,
            "flush_mode": FlushMode.ASYNC,
            "store_host": tuple(INPUT["store_host"]),
            **changed,
        }
        stores.append(Store(tmp_path, StoreSettings(**settings), clock_ms=lambda: INPUT["store_ms"]))
        stores[-1].open()
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def message(**changed: Any) -> NewMessage:
    facts = {
        "topic": INPUT["topic"],
        "queue_id": INPUT["queue_id"],
        "body": INPUT["body"].encode(),
        "properties": PROPERTIES,
        "born_ms": INPUT["born_ms"],
        "born_host": BORN_HOST,
    }
    return NewMessage(**{**facts, **changed})


def log_bytes(root: Path, at: int, size: int, name: str = FIRST_FILE) -> bytes:
    return (root / "commitlog" / name).read_bytes()[at : at + size]


def queue_bytes(root: Path, topic: str, queue_id: int, at: int, size: int = 20) -> bytes:
    return (root / "consumequeue" / topic / str(queue_id) / FIRST_FILE).read_bytes()[at : at + size]


def test_record_v1(open_store: Opener, tmp_path: Path) -> None:
    (appended,) = open_store().append([message()])
    assert tuple(appended) == (0, 0, 182, INPUT["store_ms"])
    assert log_bytes(tmp_path, 0, 200).hex() == (unhex(VECTORS["record_v1"]) + bytes(18)).hex()


def test_record_with_crc_property(open_store: Opener, tmp_path: Path) -> None:
    open_store(append_crc_property=True).append([message()])
    wanted = VECTORS["record_with_crc_property"]
    data = log_bytes(tmp_path, 0, wanted["size"] + 4)
    assert data[0x70:0x72] == unhex(wanted["properties_length_at_0x70"])
    assert data[-24:] == unhex(wanted["last_20_bytes"]) + bytes(4)


def test_record_ipv6(open_store: Opener, tmp_path: Path) -> None:
    wanted = VECTORS["record_ipv6"]
    store = open_store(store_host=tuple(wanted["store_host"]))
    (appended,) = store.append([message(born_host=pack_host(*wanted["born_host"]))])
    assert appended.size == wanted["size"]
    assert_parts(log_bytes(tmp_path, 0, wanted["size"]), wanted["parts"])


def test_record_v2(open_store: Opener, tmp_path: Path) -> None:
    wanted = VECTORS["record_v2"]
    (appended,) = open_store().append([message(topic=long_topic(), queue_id=0, body=b"x", properties=b"")])
    assert appended.size == wanted["size"]
    assert_parts(log_bytes(tmp_path, 0, wanted["size"]), wanted["parts"])


def test_record_minimal_is_written(open_store: Opener, tmp_path: Path) -> None:
    """The vector's queue offset is 7 and ours must start at 0: everything but those eight bytes is the vector's."""
    wanted = VECTORS["record_minimal"]
    store = open_store()
    _, appended = store.append([message(), message(topic="T", queue_id=0, body=b"", properties=b"")])
    assert (appended.physical_offset, appended.size) == (182, 92)
    right = bytearray(unhex(wanted["bytes"]))
    right[20:28] = bytes(8)
    assert log_bytes(tmp_path, 182, 92).hex() == right.hex()


def test_golden_log_is_read(open_store: Opener, tmp_path: Path) -> None:
    """Both records of the vectors as a log somebody else wrote and was killed over: rebuilt and served."""
    (tmp_path / "commitlog").mkdir()
    data = unhex(VECTORS["record_v1"]) + unhex(VECTORS["record_minimal"]["bytes"])
    (tmp_path / "commitlog" / FIRST_FILE).write_bytes(data.ljust(1 << 16, b"\0"))
    (tmp_path / "abort").write_text("1")
    store = open_store()
    found = store.read_at(0)
    assert found is not None
    assert bytes(found.body) == INPUT["body"].encode()
    assert dict(found.properties) == INPUT["properties"]
    assert (found.born_host, found.store_host) == ("10.1.2.3:40000", "192.168.1.10:10911")
    minimal = store.read_at(182)
    assert minimal is not None
    assert (minimal.topic, minimal.queue_offset, bytes(minimal.body), dict(minimal.properties)) == ("T", 7, b"", {})
    assert store.max_physical_offset == len(data)
    assert [bytes(one.body) for one in store.read("TopicTest", 3, 0).messages] == [INPUT["body"].encode()]


def test_end_of_file(open_store: Opener, tmp_path: Path) -> None:
    wanted = VECTORS["end_of_file"]
    store = open_store(commit_log_file_bytes=182 + wanted["left"])
    _, rolled = store.append([message(), message(body=bytes(30))])
    assert rolled.physical_offset == 382
    assert log_bytes(tmp_path, 182, 200).hex() == (unhex(wanted["bytes"]) + bytes(192)).hex()


@pytest.mark.parametrize("vector", VECTORS["queue_units"], ids=lambda vector: vector["name"])
def test_queue_unit(open_store: Opener, tmp_path: Path, vector: dict[str, Any]) -> None:
    """A record of the vector's size and tag at the vector's place leaves the vector's twenty bytes."""
    store = open_store()
    if vector["physical_offset"]:
        store.append([_of_size(vector["physical_offset"], "Before", "")])
    (appended,) = store.append([_of_size(vector["size"], "TopicTest", vector["tag"])])
    assert (appended.physical_offset, appended.size) == (vector["physical_offset"], vector["size"])
    assert queue_bytes(tmp_path, "TopicTest", 3, 0).hex() == unhex(vector["bytes"]).hex()
    assert store.units("TopicTest", 3, 0, 1) == [(vector["physical_offset"], vector["size"], vector["hash"])]


def _of_size(size: int, topic: str, tag: str) -> NewMessage:
    properties = encode_properties({"TAGS": tag} if tag else {"k": "v"})
    return message(topic=topic, properties=properties, body=bytes(size - 91 - len(topic) - len(properties)))


def test_scheduled_unit_carries_its_due_time(open_store: Opener, tmp_path: Path) -> None:
    wanted = VECTORS["scheduled_unit"]
    properties = PROPERTIES + encode_properties({"DELAY": str(wanted["level"])})
    open_store().append([message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=properties)])
    assert queue_bytes(tmp_path, "SCHEDULE_TOPIC_XXXX", 2, 12, 8) == unhex(wanted["bytes"])[12:]


@pytest.mark.parametrize(("tag", "value"), VECTORS["tag_hashes"].items())
def test_tag_hash(tag: str, value: int) -> None:
    assert tag_hash(tag) == value


def test_index_at_default_sizes(open_store: Opener, tmp_path: Path) -> None:
    wanted = VECTORS["index"]
    store = open_store(index_slots=wanted["slots"], index_units=wanted["units"])
    store.append([message()])
    store.close()
    (path,) = (tmp_path / "index").iterdir()
    assert path.stat().st_size == wanted["file_bytes"]
    assert len(path.name) == 17
    assert path.name.isdecimal()
    with path.open("rb") as file:

        def part(at: int, size: int) -> bytes:
            file.seek(at)
            return file.read(size)

        assert part(0, 40).hex() == unhex(wanted["header"]).hex()
        assert part(int(wanted["unit_0_at"], 16), 20) == bytes(20)
        for entry in wanted["entries"]:
            assert part(int(entry["slot_at"], 16), 4) == unhex(entry["slot_value"]), entry["key"]
            assert part(int(entry["unit_at"], 16), 20) == unhex(entry["unit"]), entry["key"]


def test_checkpoint(open_store: Opener, tmp_path: Path) -> None:
    """Both message times are the last record's after a clean stop.

    The page is Apache's size and zero behind its fields.
    """
    wanted = VECTORS["checkpoint"]
    store = open_store()
    store.append([message()])
    store.close()
    page = (tmp_path / "checkpoint").read_bytes()
    assert len(page) == wanted["file_bytes"]
    assert page[:16] == unhex(wanted["bytes"])[:16]


@pytest.mark.parametrize("vector", VECTORS["offset_message_ids"], ids=lambda vector: vector["id"])
def test_offset_message_id(vector: dict[str, Any]) -> None:
    ip, port = vector["store_host"]
    made = offset_message_id(pack_host(ip, port), vector["physical_offset"])
    assert made == vector["id"]
    assert parse_offset_message_id(made) == (ip, port, vector["physical_offset"])


def test_batch_unit(open_store: Opener, tmp_path: Path) -> None:
    """The vector's place, size and base come from what was appended before, and from the length of the body."""
    wanted = VECTORS["batch_unit"]
    store = open_store()
    before = message(sys_flag=0xC0, body=b"", properties=b"INNER_NUM\x01%d\x02" % wanted["base"])
    (first,) = store.append([before])
    between = message(topic="Other", properties=b"")
    overhead = 91 + len("Other")
    store.append([between._replace(body=bytes(wanted["physical_offset"] - first.size - overhead))])
    properties = b"TAGS\x01%s\x02INNER_NUM\x01%d\x02" % (wanted["tag"].encode(), wanted["count"])
    overhead = 91 + len(INPUT["topic"]) + len(properties) + len(b"INNER_BASE\x01%d\x02" % wanted["base"])
    (appended,) = store.append(
        [message(sys_flag=0xC0, body=bytes(wanted["size"] - overhead), properties=properties)]
    )  # fmt: skip
    assert tuple(appended) == (wanted["base"], wanted["physical_offset"], wanted["size"], wanted["store_ms"])
    path = tmp_path / "batchconsumequeue" / INPUT["topic"] / str(INPUT["queue_id"]) / FIRST_FILE
    assert path.stat().st_size == 46 * 1000
    assert path.read_bytes()[46:92].hex() == unhex(wanted["bytes"]).hex()
