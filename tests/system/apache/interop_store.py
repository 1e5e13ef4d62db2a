"""The stores that travel between Razzo and Apache: what is written into them, and how both readings are compared."""

from __future__ import annotations

import base64
import random
import zlib
from pathlib import Path
from typing import Any

from apache_rocketmq import ApacheBroker
from store_pair import facts
from twin import recovery
from twin.queues import Unit
from twin.records import Record, crc31, decode_properties, encode_properties, gets_unit, pack_host, tag_code
from twin.store import Message, Queue, TwinStore

from razzo.storage import FlushMode, Store, StoreSettings

LOG_FILE_BYTES = 2 << 20
QUEUE_FILE_UNITS = 50
INDEX_SLOTS, INDEX_UNITS = 100, 150
SIZES: dict[str, Any] = {
    "commit_log_file_bytes": LOG_FILE_BYTES,
    "consume_queue_file_units": QUEUE_FILE_UNITS,
    "index_slots": INDEX_SLOTS,
    "index_units": INDEX_UNITS,
}
APACHE_SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_UNITS * 20,
    "maxHashSlotNum": INDEX_SLOTS,
    "maxIndexNum": INDEX_UNITS,
}
LONG_TOPIC = "%RETRY%" + "g" * 121 + "_x"
TOPICS = {"Orders": 2, "clicks-2_b": 1, LONG_TOPIC: 1}
BODY_SIZES = [0, 1, 2, 100, 4095, 4096, 70_000, 1 << 20]
COMPRESSED, COMPRESSED_ZLIB = 0x1, 0x301
ADDED_BY_PULL = {"MIN_OFFSET", "MAX_OFFSET"}


def settings(port: int, ip: str = "127.0.0.1", **changed: Any) -> StoreSettings:
    return StoreSettings(
        **{**SIZES, "flush_mode": FlushMode.SYNC, "store_host": (ip, port), "query_max": 1000, **changed}
    )


def messages_to_send(seed: int, count: int) -> list[Message]:
    """Messages for every topic and queue.

    All body sizes, tags, shared and own keys, both host kinds, compressed bodies.
    """
    rng = random.Random(seed)
    places = [(topic, queue_id) for topic, queues in TOPICS.items() for queue_id in range(queues)]
    made = []
    for number in range(count):
        topic, queue_id = places[number % len(places)]
        size = BODY_SIZES[number % len(BODY_SIZES)] if number < 24 else rng.randrange(20_000)
        body = rng.randbytes(size)
        compressed = number % 5 == 3
        properties = {
            "UNIQ_KEY": f"{seed:08X}{number:024X}",
            "TAGS": ["TagA", "TagB", "payment", "中文"][number % 4],
            "KEYS": f"own-{seed}-{number} every-{seed}",
            "colour": rng.choice(["red", "grün", "青"]),
        }
        made.append(
            Message(
                topic=topic,
                queue_id=queue_id,
                body=zlib.compress(body) if compressed else body,
                properties=encode_properties(properties),
                sys_flag=COMPRESSED_ZLIB if compressed else 0,
                flag=number - 5,
                born_ms=1_790_000_000_000 + number,
                born_host=pack_host("2001:db8::17", 4711) if number % 3 == 0 else pack_host("10.1.2.3", 40000),
                reconsume_times=number % 4,
            )
        )
    return made


def save_topics(store: Store, topics: dict[str, int]) -> None:
    """The two files Apache wants in config/, in its shapes (store-and-semantics.md 1.1)."""
    table = {
        name: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for name, queues in topics.items()
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    store.save_config("topics", {"dataVersion": version, "topicConfigTable": table})
    store.save_config("subscriptionGroup", {"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": {}})


# -- what Apache shows, in the spelling of store_pair.facts ------------------------------------------------------------


def apache_facts(shown: dict[str, Any]) -> dict[str, Any]:
    properties = {key: value for key, value in shown["properties"].items() if key not in ADDED_BY_PULL}
    return {**shown, "body": base64.b64decode(shown["body"]), "properties": properties}


def as_apache_shows(record: Record) -> dict[str, Any]:
    """The record's facts as Apache's client would show them.

    Hosts the Java way, the body inflated, its flag cleared.
    """
    known = facts(record)
    del known["raw_properties"]
    compressed = record.sys_flag & COMPRESSED
    return {
        **known,
        "body": zlib.decompress(record.body) if compressed else record.body,
        "sys_flag": record.sys_flag & ~COMPRESSED,
        "body_crc": crc31(record.body),
        "properties": decode_properties(record.properties),
        "born_host": java_host(record.born_host),
        "store_host": java_host(record.store_host),
    }


def java_host(host: bytes) -> str:
    """InetAddress.getHostAddress writes IPv6 as eight groups without leading zeros and without shortening."""
    ip, port = host[:-4], int.from_bytes(host[-4:], "big")
    if len(ip) == 4:
        return f"{'.'.join(map(str, ip))}:{port}"
    return ":".join(f"{int.from_bytes(ip[at : at + 2], 'big'):x}" for at in range(0, 16, 2)) + f":{port}"


# -- the log as the twin reads it from the files -----------------------------------------------------------------------


def twin_from_files(root: Path, store_host: bytes = bytes(8), file_bytes: int = LOG_FILE_BYTES) -> TwinStore:
    """A twin filled from a stopped store's commit log, by nothing but the twin's own scan."""
    files = {int(path.name): path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
    outcome = recovery.recover(files)
    assert outcome.damage == []
    twin = TwinStore(file_bytes, QUEUE_FILE_UNITS, INDEX_SLOTS, INDEX_UNITS, store_host)
    twin.end = outcome.end
    for record in outcome.records:
        twin.records.append(record)
        if gets_unit(record.sys_flag):
            twin.queues.setdefault((record.topic, record.queue_id), Queue(record.queue_offset)).units.append(
                Unit(record.physical_offset, record.size, tag_code(record))
            )
    for key in twin.queues:
        offsets = [record.queue_offset for record in twin.in_queue(*key)]
        assert offsets == list(range(*twin.queue_range(*key))), key
    return twin


def assert_apache_serves(broker: ApacheBroker, twin: TwinStore, topics: dict[str, int], seeds: list[int]) -> None:
    """Every message of these topics, from Apache: by queue, by each own key, by the shared keys, and by id."""
    for topic, queues in topics.items():
        for queue_id in range(queues):
            wanted = [as_apache_shows(record) for record in twin.in_queue(topic, queue_id)]
            drained = broker.call("drain", topic=topic, queue_id=queue_id, offset=0)
            assert_same_messages([apache_facts(shown) for shown in drained["messages"]], wanted)
            assert broker.call("range", topic=topic, queue_id=queue_id) == [0, len(wanted)]
            for one in wanted:
                assert_apache_finds(broker, topic, one)
        for seed in seeds:
            assert_apache_finds_all(broker, twin, topic, f"every-{seed}")


def assert_same_messages(got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """One by one, so that a difference names its message and its fact."""
    for one, right in zip(got, wanted, strict=False):
        differing = {
            name: (one.get(name), right.get(name)) for name in {*one, *right} if one.get(name) != right.get(name)
        }
        assert not differing, f"{right['topic']}/{right['queue_id']}/{right['queue_offset']}: {differing!s:.500}"
    assert len(got) == len(wanted)


def assert_apache_finds(broker: ApacheBroker, topic: str, wanted: dict[str, Any]) -> None:
    """One message by its message id and by its own key."""
    if wanted["store_host"].startswith("127."):
        found = broker.call("by_id", topic=topic, id=wanted["offset_message_id"])
    else:
        found = broker.call("by_physical_offset", topic=topic, physical_offset=wanted["physical_offset"])
    assert apache_facts(found) == wanted
    own_key = wanted["properties"]["KEYS"].split()[0]
    found = broker.call("by_key", topic=topic, key=own_key, begin_ms=0, end_ms=1 << 50)
    assert [apache_facts(one) for one in found] == [wanted], own_key


def assert_apache_finds_all(broker: ApacheBroker, twin: TwinStore, topic: str, key: str) -> None:
    """A key that many messages share: Apache answers the newest 64."""
    wanted = {record.physical_offset for record in twin.by_key(topic, key)[:64]}
    found = broker.call("by_key", topic=topic, key=key, begin_ms=0, end_ms=1 << 50)
    assert {one["physical_offset"] for one in found} == wanted, (topic, key)


def assert_razzo_serves(store: Store, twin: TwinStore) -> None:
    """Every message of every queue, from Razzo: by queue, by physical offset, by id, by unit, by each of its keys."""
    assert sorted(store.topics()) == twin.topics()
    for topic, queue_id in sorted(twin.queues):
        low, high = twin.queue_range(topic, queue_id)
        assert store.queue_range(topic, queue_id) == (low, high), (topic, queue_id)
        got, at = [], low
        while at < high:
            result = store.read(topic, queue_id, at, max_bytes=2 << 20)
            assert result.next_offset > at, (topic, queue_id, result)
            got += result.messages
            at = result.next_offset
        wanted = twin.in_queue(topic, queue_id)
        assert [facts(message) for message in got] == [facts(record) for record in wanted], (topic, queue_id)
        units = [tuple(unit) for unit in twin.queues[topic, queue_id].units]
        assert [tuple(unit) for unit in store.units(topic, queue_id, low, high - low)] == units, (topic, queue_id)
    for record in twin.records:
        found = store.read_at(record.physical_offset)
        assert found is not None
        assert facts(found) == facts(record)


def assert_razzo_finds_keys(store: Store, twin: TwinStore) -> None:
    """Every key of every message, with exactly the messages that carry it."""
    places: dict[tuple[str, str], set[int]] = {}
    for record in twin.records:
        for key in keys_of(record):
            places.setdefault((record.topic, key), set()).add(record.physical_offset)
    for (topic, key), wanted in sorted(places.items()):
        found = [message.physical_offset for message in store.query_by_key(topic, key, len(wanted) + 1, 0, 1 << 50)]
        assert found == sorted(wanted), (topic, key)


def keys_of(record: Record) -> list[str]:
    pairs = decode_properties(record.properties)
    return [*([pairs["UNIQ_KEY"]] if "UNIQ_KEY" in pairs else []), *pairs.get("KEYS", "").split()]
