"""A store with a topic of inner batches (queue.type=BatchCQ), handed to Apache RocketMQ 5.4.0 and back.

razzo writes batches, stops -> apache serves them, adds its own, is killed -> razzo serves all, also with the queue gone
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_rocketmq import ApacheBroker, Desk
from interop_store import APACHE_SIZES, QUEUE_FILE_UNITS, save_topics, settings

from razzo.protocol.properties import encode_properties
from razzo.storage import NewMessage, Store, inner_batch, unwrap

TOPIC = "Batches"
COUNTS = [1, 2, 3, 7, 20] * 14
"""Messages in each of Razzo's batches: more batches than a queue file has units."""
APACHES = [[f"apache-{batch}.{number}" for number in range(size)] for batch, size in enumerate((3, 1, 12))]


def a_batch(number: int, count: int) -> NewMessage:
    body = b""
    for i in range(count):
        properties = encode_properties({"TAGS": "TagA", "UNIQ_KEY": f"{number:08X}{i:024X}"})
        text = f"razzo-{number}.{i}".encode()
        head = b"".join(field.to_bytes(4, "big") for field in (22 + len(text) + len(properties), 0, 0, i, len(text)))
        body += head + text + len(properties).to_bytes(2, "big") + properties
    properties = encode_properties({"TAGS": "TagA", "UNIQ_KEY": f"{number:032X}", "WAIT": "true"})
    return inner_batch(NewMessage(TOPIC, 0, body, properties, born_host=bytes([10, 1, 2, 3, 0, 0, 0x9C, 0x40])))


RAZZOS = [f"razzo-{number}.{i}" for number, count in enumerate(COUNTS) for i in range(count)]
ALL = RAZZOS + [text for batch in APACHES for text in batch]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBroker]:
    """Apache over a store that Razzo filled and stopped cleanly."""
    folder = tmp_path_factory.mktemp("batches")
    desk = Desk(folder / "desk")
    sizes = {**APACHE_SIZES, "mapperFileSizeBatchConsumeQueue": QUEUE_FILE_UNITS * 46}
    broker = ApacheBroker(desk, folder / "apache", folder / "store", "batches", **sizes)
    store = Store(folder / "store", settings(broker.port))
    store.open()
    save_topics(store, {TOPIC: 1})
    table = store.load_config("topics")
    assert table is not None
    table["topicConfigTable"][TOPIC]["attributes"] = {"queue.type": "BatchCQ"}
    store.save_config("topics", table)
    for number, count in enumerate(COUNTS):
        store.append([a_batch(number, count)])
    store.close()
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        desk.stop()


@pytest.fixture(scope="module")
def served(broker: ApacheBroker) -> list[dict[str, object]]:
    """What Apache shows of Razzo's batches."""
    assert broker.call("range", topic=TOPIC, queue_id=0) == [0, len(RAZZOS)]
    drained = broker.call("drain", topic=TOPIC, queue_id=0, offset=0)
    assert drained["next_offset"] == len(RAZZOS)
    shown: list[dict[str, object]] = drained["messages"]
    return shown


@pytest.fixture(scope="module")
def killed(broker: ApacheBroker, served: list[dict[str, object]]) -> Path:
    """The store after Apache added three batches and was killed."""
    first = len(RAZZOS)
    for batch in APACHES:
        assert broker.call("send_batch", topic=TOPIC, queue_id=0, bodies=batch) == first
        first += len(batch)
    assert broker.call("range", topic=TOPIC, queue_id=0) == [0, len(ALL)]
    broker.kill()
    return broker.store


def test_apache_serves_razzos_batches(served: list[dict[str, object]]) -> None:
    bodies = [base64.b64decode(str(message["body"])).decode() for message in served]
    assert bodies == RAZZOS
    assert [message["queue_offset"] for message in served] == list(range(len(RAZZOS)))


@pytest.mark.parametrize("lost", [False, True])
def test_razzo_serves_apaches_batches(killed: Path, broker: ApacheBroker, tmp_path: Path, lost: bool) -> None:
    root = tmp_path / "store"
    shutil.copytree(killed, root)
    if lost:
        shutil.rmtree(root / "batchconsumequeue")
    store = Store(root, settings(broker.port))
    report = store.open()
    try:
        assert (report.clean, report.cut_at, report.damaged) == (False, None, ())
        assert store.queue_range(TOPIC, 0) == (0, len(ALL))
        messages = []
        offset = 0
        while offset < len(ALL):
            result = store.read(TOPIC, 0, offset)
            messages += [one for batch in result.messages for one in unwrap(batch)]
            offset = result.next_offset
        assert [one.body.decode() for one in messages] == ALL
        assert [one.queue_offset for one in messages] == list(range(len(ALL)))
        assert [one.properties["TAGS"] for one in messages] == ["TagA"] * len(RAZZOS) + ["TagB"] * (
            len(ALL) - len(RAZZOS)
        )
        for offset in range(len(RAZZOS), len(ALL)):
            (batch,) = store.read(TOPIC, 0, offset, 1).messages
            assert ALL[offset] in [one.body.decode() for one in unwrap(batch)]
        assert store.append([a_batch(900, 4)])[0].queue_offset == len(ALL)
    finally:
        store.close()
