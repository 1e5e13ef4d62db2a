"""One store, handed back and forth between Razzo and Apache RocketMQ 5.4.0, after clean stops and after kill -9.

The steps build on one another, so each is a fixture of the module and is taken once, in the order below; the tests then
look at what each step left. What must be there is read from the commit log's files by the twin alone.

    razzo writes, stops          -> apache serves it all, adds its own, stops        (directions a and b)
    razzo reads it all, adds     -> is killed -> apache serves it all, adds          (direction c)
    apache is killed             -> razzo reads it all                               (direction d)
"""

from __future__ import annotations

import base64
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from apache_rocketmq import ApacheBroker, Desk
from interop_store import (
    APACHE_SIZES,
    LOG_FILE_BYTES,
    SIZES,
    TOPICS,
    apache_facts,
    as_apache_shows,
    assert_apache_serves,
    assert_razzo_finds_keys,
    assert_razzo_serves,
    assert_same_messages,
    messages_to_send,
    save_topics,
    settings,
    twin_from_files,
)
from storage_children import Child, Plan
from store_pair import facts, new_message
from twin.records import Record, decode_properties, encode_properties, pack_host
from twin.store import TwinStore

from razzo.storage import FlushMode, Store, StoreSettings

DELIVERY_S_MAX = 30
FIRST_SEED, KILLED_SEED = 11, 12
APACHE_TOPIC = "FromApache"
"""Made by Apache itself; the others by Razzo through topics.json."""


@dataclass
class Travelled:
    """The store on its way: its folder, Apache's broker for it, and what was known at each station."""

    root: Path
    broker: ApacheBroker
    sent: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    shown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    yield desk
    desk.stop()


# -- Razzo to Apache, clean --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def razzo_wrote(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Travelled]:
    folder = tmp_path_factory.mktemp("travelled")
    root = folder / "store"
    broker = ApacheBroker(desk, folder / "apache", root, "travelled", **APACHE_SIZES)
    store = Store(root, settings(broker.port))
    store.open()
    save_topics(store, TOPICS)
    messages = messages_to_send(FIRST_SEED, 300)
    for at in range(0, len(messages), 7):
        store.append([new_message(message) for message in messages[at : at + 7]])
    store.close()
    assert not (root / "abort").exists()
    yield Travelled(root, broker)
    broker.kill()


@pytest.fixture(scope="module")
def apache_opened(razzo_wrote: Travelled) -> Travelled:
    razzo_wrote.broker.start()
    return razzo_wrote


@pytest.fixture(scope="module")
def razzo_log(razzo_wrote: Travelled) -> TwinStore:
    """What Razzo wrote, before Apache touches it."""
    return twin_from_files(razzo_wrote.root)


def test_razzo_wrote_several_files(razzo_log: TwinStore, razzo_wrote: Travelled) -> None:
    assert len(razzo_log.records) == 300
    assert len(list((razzo_wrote.root / "commitlog").iterdir())) >= 2
    assert len(list((razzo_wrote.root / "consumequeue" / "Orders" / "0").iterdir())) >= 2
    assert len(list((razzo_wrote.root / "index").iterdir())) >= 2


def test_apache_serves_what_razzo_wrote(razzo_log: TwinStore, apache_opened: Travelled) -> None:
    assert_apache_serves(apache_opened.broker, razzo_log, TOPICS, [FIRST_SEED])


def test_apache_filters_razzo_queues_by_tag(razzo_log: TwinStore, apache_opened: Travelled) -> None:
    wanted = [
        as_apache_shows(record)
        for record in razzo_log.in_queue("Orders", 1)
        if decode_properties(record.properties)["TAGS"] in ("TagB", "中文")
    ]
    drained = apache_opened.broker.call("drain", topic="Orders", queue_id=1, offset=0, tags="TagB || 中文")
    assert wanted
    assert [apache_facts(shown) for shown in drained["messages"]] == wanted


def test_apache_finds_razzo_messages_by_time(razzo_log: TwinStore, apache_opened: Travelled) -> None:
    records = razzo_log.in_queue("Orders", 0)
    for record in (records[0], records[len(records) // 2], records[-1]):
        found = apache_opened.broker.call("offset_by_time", topic="Orders", queue_id=0, timestamp_ms=record.store_ms)
        assert found == razzo_log.offset_by_time("Orders", 0, record.store_ms, upper=False)


# -- Apache to Razzo, clean --------------------------------------------------------------------------------------------


def apache_messages(seed: int) -> list[dict[str, Any]]:
    """Requests for ApacheDesk's "send": plain, large, compressible, keyed, delayed and transactional ones."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = []
    for number in range(120):
        size = [0, 1, 50, 5000, 1 << 20][number % 5] if number < 10 else rng.randrange(1, 2000)
        body = bytes(size) if number % 3 == 0 else rng.randbytes(size)
        made.append({
            "topic": [APACHE_TOPIC, "Orders"][number % 2], "queue_id": number // 2 % 2, "flag": number,
            "body": base64.b64encode(body or b"?").decode(), "tags": ["TagA", "TagB", "中文"][number % 3],
            "keys": f"own-{seed}-{number} every-{seed}", "properties": {"colour": rng.choice(["red", "grün"])},
        })  # fmt: skip
    special = {"topic": APACHE_TOPIC, "queue_id": 0, "tags": "TagA", "properties": {}}
    for number, more in enumerate(
        ({"delay_level": 1}, {"delay_level": 18}, {"outcome": "COMMIT_MESSAGE"}, {"outcome": "ROLLBACK_MESSAGE"},
         {"outcome": "UNKNOW"})
    ):  # fmt: skip
        body = base64.b64encode(f"special {seed} {number}".encode()).decode()
        made.append({**special, **more, "body": body, "keys": f"special-{seed}-{number}"})
    return made


def write_with_apache(travelled: Travelled, station: str, seed: int) -> None:
    """Sends, waits until the message of delay level 1 and the committed one were delivered, and drains Apache's
    topic."""
    broker = travelled.broker
    broker.call("create_topic", topic=APACHE_TOPIC, queues=2)
    requests = apache_messages(seed)
    answers = broker.call("send", messages=requests)
    assert {answer["status"] for answer in answers} == {"SEND_OK"}
    travelled.sent[station] = [{**request, **answer} for request, answer in zip(requests, answers, strict=True)]
    delivered = {base64.b64encode(f"special {seed} {number}".encode()).decode() for number in (0, 2)}
    deadline, pause = time.monotonic() + DELIVERY_S_MAX, threading.Event()
    while True:
        shown = [
            one
            for queue_id in (0, 1)
            for one in broker.call("drain", topic=APACHE_TOPIC, queue_id=queue_id, offset=0)["messages"]
        ]
        if delivered <= {one["body"] for one in shown}:
            break
        assert time.monotonic() < deadline, f"Apache did not deliver its delayed and committed messages: {len(shown)}"
        pause.wait(0.1)
    travelled.shown[station] = [apache_facts(one) for one in shown]


@pytest.fixture(scope="module")
def apache_wrote(apache_opened: Travelled, razzo_log: TwinStore) -> Travelled:
    write_with_apache(apache_opened, "clean", 21)
    apache_opened.broker.stop()
    assert not (apache_opened.root / "abort").exists()
    return apache_opened


@pytest.fixture(scope="module")
def both_wrote_log(apache_wrote: Travelled) -> TwinStore:
    return twin_from_files(apache_wrote.root)


@pytest.fixture(scope="module")
def razzo_opened(apache_wrote: Travelled, both_wrote_log: TwinStore) -> Iterator[Store]:
    store = Store(apache_wrote.root, settings(apache_wrote.broker.port))
    store.open()
    yield store
    store.close()


def assert_holds_what_apache_showed(store: Store, travelled: Travelled, station: str) -> None:
    """By message id, every fact Apache's own client showed of its messages."""
    assert len(travelled.shown[station]) > 60
    for shown in travelled.shown[station]:
        found = store.read_at(shown["physical_offset"])
        assert found is not None
        assert found.offset_message_id == shown["offset_message_id"]
        assert_same_messages([as_apache_shows(_record(found))], [shown])


def _record(message: Any) -> Record:
    """A StoredMessage as the twin's record, so that one function knows how Apache shows things."""
    known = facts(message)
    for name in ("properties", "offset_message_id"):
        del known[name]
    for name in ("born_host", "store_host"):
        ip, _, port = known[name].rpartition(":")
        known[name] = pack_host(ip.strip("[]"), int(port))
    known["properties"] = known.pop("raw_properties")
    return Record(**known)


def test_razzo_serves_what_apache_wrote(
    razzo_opened: Store, both_wrote_log: TwinStore, apache_wrote: Travelled
) -> None:
    assert_razzo_serves(razzo_opened, both_wrote_log)
    assert_holds_what_apache_showed(razzo_opened, apache_wrote, "clean")


def test_razzo_finds_keys_in_apache_index(razzo_opened: Store, both_wrote_log: TwinStore) -> None:
    assert_razzo_finds_keys(razzo_opened, both_wrote_log)


def test_apache_answers_name_razzo_places(razzo_opened: Store, apache_wrote: Travelled) -> None:
    """Each plain send was answered with a queue offset and an id: both lead to that body in Razzo."""
    plain = [one for one in apache_wrote.sent["clean"] if "outcome" not in one and "delay_level" not in one]
    for one in plain:
        (found,) = razzo_opened.read_offsets(one["topic"], one["queue_id"], [one["queue_offset"]])
        assert found is not None
        assert found.offset_message_id == one["offset_message_id"]
        assert dict(found.properties)["UNIQ_KEY"] == one["unique_id"]
        assert dict(found.properties)["KEYS"] == one["keys"]


def test_leftovers_are_on_their_system_topics(razzo_opened: Store, both_wrote_log: TwinStore) -> None:
    pending = both_wrote_log.in_queue("SCHEDULE_TOPIC_XXXX", 17)
    assert [decode_properties(record.properties)["REAL_TOPIC"] for record in pending] == [APACHE_TOPIC]
    ((_, _, due_ms),) = razzo_opened.units("SCHEDULE_TOPIC_XXXX", 17, 0, 10)
    assert due_ms == pending[0].store_ms + 2 * 3_600_000
    halves = razzo_opened.read("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0).messages
    assert {half.properties["REAL_TOPIC"] for half in halves} == {APACHE_TOPIC}
    assert len({half.properties["UNIQ_KEY"] for half in halves}) == 3, "Apache may write a half it checks anew"


def test_razzo_reads_apache_configs(razzo_opened: Store) -> None:
    topics = razzo_opened.load_config("topics")
    assert topics is not None
    assert {APACHE_TOPIC, *TOPICS} <= set(topics["topicConfigTable"])
    delays = razzo_opened.load_config("delayOffset")
    assert delays is not None
    assert delays["offsetTable"]["1"] == 1


# -- Razzo to Apache, killed -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def razzo_was_killed(razzo_opened: Store, apache_wrote: Travelled) -> tuple[Travelled, int]:
    """A process of ours writes on, with IPv6 addresses, and is killed while it does; how many messages it had acked."""
    razzo_opened.close()
    messages = messages_to_send(KILLED_SEED, 500)
    batches = [messages[at : at + 5] for at in range(0, len(messages), 5)]
    steps = [("open",), *(("append", batch) for batch in batches)]
    ours = settings(apache_wrote.broker.port, "::1")
    child = Child(Plan(apache_wrote.root, ours, steps, now_ms=int(time.time() * 1000)))
    child.wait_done(41)
    child.kill()
    acked = 5 * (child.done - 1)
    assert (apache_wrote.root / "abort").exists()
    return apache_wrote, acked


@pytest.fixture(scope="module")
def apache_recovered(razzo_was_killed: tuple[Travelled, int]) -> tuple[Travelled, TwinStore]:
    travelled, _ = razzo_was_killed
    log = twin_from_files(travelled.root)
    travelled.broker.start()
    return travelled, log


def test_apache_serves_what_a_killed_razzo_acked(
    razzo_was_killed: tuple[Travelled, int], apache_recovered: tuple[Travelled, TwinStore]
) -> None:
    travelled, log = apache_recovered
    _, acked = razzo_was_killed
    ours = [record for record in log.records if f"every-{KILLED_SEED}".encode() in record.properties]
    assert len(ours) >= acked >= 200
    sent = messages_to_send(KILLED_SEED, len(ours))
    assert [(record.topic, record.queue_id, record.body) for record in ours] == [one[:3] for one in sent]
    topics = {name: queues for name, queues in TOPICS.items() if name != "Orders"}
    assert_apache_serves(travelled.broker, log, topics, [KILLED_SEED])
    for queue_id in range(TOPICS["Orders"]):
        wanted = [as_apache_shows(record) for record in log.in_queue("Orders", queue_id)]
        drained = travelled.broker.call("drain", topic="Orders", queue_id=queue_id, offset=0)
        assert_same_messages([apache_facts(shown) for shown in drained["messages"]], wanted)


# -- Apache to Razzo, killed -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apache_was_killed(apache_recovered: tuple[Travelled, TwinStore]) -> Travelled:
    travelled, _ = apache_recovered
    write_with_apache(travelled, "killed", 22)
    travelled.broker.kill()
    assert (travelled.root / "abort").exists()
    return travelled


def test_razzo_serves_what_a_killed_apache_acked(apache_was_killed: Travelled) -> None:
    log = twin_from_files(apache_was_killed.root)
    with opened(apache_was_killed.root, settings(apache_was_killed.broker.port)) as store:
        assert store.max_physical_offset == log.end
        assert_razzo_serves(store, log)
        assert_holds_what_apache_showed(store, apache_was_killed, "killed")
        assert_razzo_finds_keys(store, log)


# -- Apache's own sizes ------------------------------------------------------------------------------------------------


def test_a_store_of_default_sizes_both_ways(desk: Desk, tmp_path: Path) -> None:
    """1 GiB log files, 6 MB queue files, 420 MB index files.

    Apache makes them, is killed, Razzo goes on, Apache reads.
    """
    broker = ApacheBroker(desk, tmp_path / "apache", tmp_path / "store", "default-sizes")
    broker.start()
    broker.call("create_topic", topic="Big", queues=1)
    sent = [{"topic": "Big", "queue_id": 0, "tags": "TagA", "keys": f"k-{number}", "properties": {},
             "body": base64.b64encode(bytes(number)).decode()} for number in range(1, 6)]  # fmt: skip
    broker.call("send", messages=sent)
    broker.kill()
    defaults = StoreSettings(flush_mode=FlushMode.SYNC, store_host=("127.0.0.1", broker.port))
    with opened(tmp_path / "store", defaults) as store:
        assert [len(message.body) for message in store.read("Big", 0, 0).messages] == [1, 2, 3, 4, 5]
        message = messages_to_send(1, 1)[0]._replace(topic="Big", properties=encode_properties({"KEYS": "razzo-key"}))
        store.append([new_message(message)])
    assert (tmp_path / "store" / "commitlog" / f"{0:020d}").stat().st_size == 1 << 30
    broker.start()
    try:
        assert len(broker.call("drain", topic="Big", queue_id=0, offset=0)["messages"]) == 6
        (found,) = broker.call("by_key", topic="Big", key="razzo-key", begin_ms=0, end_ms=1 << 50)
        assert found["queue_offset"] == 5
        assert len(broker.call("by_key", topic="Big", key="k-3", begin_ms=0, end_ms=1 << 50)) == 1
    finally:
        broker.kill()


class opened:
    """A Store for the length of a with block."""

    def __init__(self, root: Path, wanted: StoreSettings):
        self.store = Store(root, wanted)

    def __enter__(self) -> Store:
        self.store.open()
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


def test_sizes_are_the_same_on_both_sides() -> None:
    assert SIZES["commit_log_file_bytes"] == APACHE_SIZES["mappedFileSizeCommitLog"] == LOG_FILE_BYTES
    assert SIZES["consume_queue_file_units"] * 20 == APACHE_SIZES["mappedFileSizeConsumeQueue"]
