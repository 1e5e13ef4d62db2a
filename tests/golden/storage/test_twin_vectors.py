"""The twin itself against the golden vectors: an oracle that is wrong would agree with a kernel that is wrong."""

from __future__ import annotations

import struct

import pytest
from golden_vectors import INPUT, PROPERTIES, VECTORS, assert_parts, input_record, long_topic, unhex
from twin.key_index import IndexFile, encode_checkpoint, key_hash
from twin.queues import FILLER, Unit, encode_batch_unit, encode_unit
from twin.records import (
    Record,
    blank,
    crc31,
    decode,
    decode_properties,
    encode,
    index_keys,
    java_hash,
    offset_message_id,
    pack_host,
    tag_code,
)


def test_record_v1() -> None:
    assert encode(input_record()).hex() == unhex(VECTORS["record_v1"]).hex()


def test_record_v1_is_read_back() -> None:
    record = decode(unhex(VECTORS["record_v1"]), 0)
    assert record == input_record(size=182)
    assert decode_properties(record.properties) == INPUT["properties"]


def test_record_with_crc_property() -> None:
    data = encode(input_record(), crc_property=True)
    wanted = VECTORS["record_with_crc_property"]
    assert len(data) == wanted["size"]
    assert data[0x70:0x72] == unhex(wanted["properties_length_at_0x70"])
    assert data[-20:] == unhex(wanted["last_20_bytes"])
    assert crc31(data[:182]) == wanted["crc_of_first_182_bytes"]


def test_record_ipv6() -> None:
    wanted = VECTORS["record_ipv6"]
    hosts = {name: pack_host(*wanted[name]) for name in ("born_host", "store_host")}
    data = encode(input_record(**hosts))
    assert len(data) == wanted["size"]
    assert_parts(data, wanted["parts"])


def test_record_v2() -> None:
    wanted = VECTORS["record_v2"]
    data = encode(input_record(topic=long_topic(), queue_id=0, body=b"x", properties=b""))
    assert len(data) == wanted["size"]
    assert_parts(data, wanted["parts"])


def test_record_minimal() -> None:
    wanted = VECTORS["record_minimal"]
    places = {name: wanted[name] for name in ("topic", "queue_id", "queue_offset", "physical_offset")}
    assert encode(input_record(body=b"", properties=b"", **places)).hex() == unhex(wanted["bytes"]).hex()


def test_end_of_file() -> None:
    assert blank(VECTORS["end_of_file"]["left"]) == unhex(VECTORS["end_of_file"]["bytes"])


@pytest.mark.parametrize("vector", VECTORS["queue_units"], ids=lambda vector: vector["name"])
def test_queue_unit(vector: dict) -> None:
    properties = f"TAGS\x01{vector['tag']}\x02".encode() if vector["tag"] else b""
    code = tag_code(input_record(properties=properties))
    assert code == vector["hash"]
    assert encode_unit(Unit(vector["physical_offset"], vector["size"], code)) == unhex(vector["bytes"])


def test_scheduled_unit_carries_its_due_time() -> None:
    wanted = VECTORS["scheduled_unit"]
    code = tag_code(input_record(topic="SCHEDULE_TOPIC_XXXX", properties=PROPERTIES + b"DELAY\x013\x02"))
    assert code == wanted["due_ms"]
    assert encode_unit(Unit(0, 182, code)) == unhex(wanted["bytes"])


def test_filler_and_batch_unit() -> None:
    wanted = VECTORS["batch_unit"]
    assert encode_unit(FILLER) == unhex(VECTORS["filler_unit"])
    unit = Unit(wanted["physical_offset"], wanted["size"], java_hash(wanted["tag"]))
    assert encode_batch_unit(unit, wanted["store_ms"], wanted["base"], wanted["count"]) == unhex(wanted["bytes"])


@pytest.mark.parametrize(("tag", "value"), VECTORS["tag_hashes"].items())
def test_tag_hash(tag: str, value: int) -> None:
    assert java_hash(tag) == value


def test_index_at_default_sizes() -> None:
    wanted = VECTORS["index"]
    record: Record = input_record()
    assert index_keys(record) == [entry["key"] for entry in wanted["entries"]]
    index = IndexFile(wanted["slots"], wanted["units"])
    for key in index_keys(record):
        index.put(key, record.physical_offset, record.store_ms)
    for number, entry in enumerate(wanted["entries"], start=1):
        assert key_hash(entry["key"]) == entry["hash"]
        assert index.slots[entry["slot"]] == number == int(entry["slot_value"], 16)
        assert struct.pack(">iqii", *index.units[number]) == unhex(entry["unit"])
    assert index.header() == unhex(wanted["header"])
    assert key_hash(wanted["hash_counted_as_0"]) == 0


def test_index_file_places() -> None:
    """Where slots and units stand, at a size small enough to encode: the same arithmetic as the large one's."""
    index = IndexFile(10, 8)
    index.put("TopicTest#order-1001", 0, INPUT["store_ms"])
    data = index.encode()
    assert len(data) == 40 + 4 * 10 + 20 * 8
    assert data[40 + 4 * 9 :][:4] == struct.pack(">i", 1)
    assert data[40 + 40 : 40 + 60] == bytes(20)
    assert data[40 + 60 : 40 + 80] == unhex(VECTORS["index"]["entries"][1]["unit"])


def test_checkpoint_and_timer_check() -> None:
    wanted = VECTORS["checkpoint"]
    page = encode_checkpoint(wanted["message_ms"], wanted["message_ms"])
    assert len(page) == wanted["file_bytes"]
    assert page.rstrip(b"\0").ljust(40, b"\0") == unhex(wanted["bytes"])
    timer = VECTORS["timer_check"]
    assert struct.pack(">7q", *timer["fields"]) == unhex(timer["bytes"])


@pytest.mark.parametrize("vector", VECTORS["offset_message_ids"], ids=lambda vector: vector["id"])
def test_offset_message_id(vector: dict) -> None:
    assert offset_message_id(pack_host(*vector["store_host"]), vector["physical_offset"]) == vector["id"]
