"""A whole data directory, handed from Apache's services to Razzo's and back, after clean stops and after kill -9.

The stations build on one another, so each is a fixture of the module and is taken once; the tests look at what it left.

    apache serves, stops           -> razzo up: goes on            (clean)
    razzo up serves, stops         -> apache: goes on              (clean)
    apache serves on, is killed    -> razzo up: goes on
    razzo up serves on, is killed  -> apache: goes on
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_rocketmq import ApacheBroker, Desk
from pop_client import PopClient, place
from razzo_cluster import Cluster, wait_until

QUEUES = 2
FIRST = 20
"""Messages Apache gets first: number n, in its body and key, is in queue n % 2 at offset n // 2."""
LARGE = 6
"""The number of a message whose body Java compresses."""
STEADY, RETRYING, POPPING = "steady", "retrying", "popping"
NOT_DUE_IN_THIS_TEST = 18
"""Delay level of two hours."""
RAZZO_RECEIVE_S = 2.5
REVIVE_S_MAX = 20
FILES_S_MAX = 20


class Travelled:
    """The data directory: Apache serves `data/broker`, `razzo up` serves `data`."""

    def __init__(self, folder: Path, desk: Desk) -> None:
        self.data = folder / "data"
        self.root = self.data / "broker"
        self.root.mkdir(parents=True)
        self.apache = ApacheBroker(desk, folder / "apache", self.root, "wandering", proxy=True)
        self.razzo = Cluster(self.data)
        self.popped: list[tuple[int, int]] = []
        """What POPPING got from Apache, sorted: the first of it comes back as a retry, the last is out for long."""
        self.first_bodies: list[bytes] = []
        self.got: dict[str, list[Any]] = {}
        """What each group got from Razzo."""
        self.left: dict[int, int] = {}
        """The newest message that STEADY left in each queue."""
        self.apache_got: list[tuple[int, int]] = []

    def popped_of(self, queue_id: int) -> list[int]:
        return [at for queue, at in self.popped if queue == queue_id]

    def config(self, name: str) -> Any:
        """A JSON file, whoever wrote it: bare numbers as keys are Apache's."""
        path = self.root / "config" / f"{name}.json"
        while not path.exists():  # Apache renames the former one away before it renames the new one in
            assert path.with_name(f"{name}.json.bak").exists(), path
        text = path.read_text()
        quoted = [f'"{key}":{rest}' if rest and key.isdigit() else line.strip() for line in text.splitlines()
                  for key, _, rest in [line.strip().partition(":")]]  # fmt: skip
        return json.loads("".join(quoted))

    def positions(self, group: str, topic: str = "Orders") -> dict[int, dict[str, int]]:
        """By queue, from `razzo admin groups`."""
        (found,) = [each for each in self.razzo.must("groups")["groups"] if each["name"] == group]
        return {each["queue_id"]: each for each in found["positions"] if each["topic"] == topic}

    def pop(self, group: str, topic: str = "Orders") -> PopClient:
        return PopClient(f"127.0.0.1:{self.apache.grpc_port}", group, topic)

    def receive(self, group: str, topic: str = "Orders") -> PopClient:
        return PopClient(self.razzo.endpoint, group, topic, RAZZO_RECEIVE_S)


def body(number: int) -> bytes:
    return b"large " * 2_000 if number == LARGE else f"message {number}".encode()


def request(number: int, topic: str = "Orders") -> dict[str, Any]:
    return {
        "topic": topic, "queue_id": number % QUEUES, "flag": 0, "body": base64.b64encode(body(number)).decode(),
        "tags": "TagA", "keys": f"key-{number}", "properties": {"number": str(number)},
    }  # fmt: skip


def apache_bodies(travelled: Travelled, topic: str = "Orders") -> list[bytes]:
    """Of all queues, from Apache."""
    return [
        base64.b64decode(message["body"])
        for queue_id in range(QUEUES)
        for message in travelled.apache.call("drain", topic=topic, queue_id=queue_id, offset=0)["messages"]
    ]


def razzo_bodies(travelled: Travelled) -> list[bytes]:
    """Of all queues of Orders, to a group that came just now and was set back to the beginning."""
    with travelled.receive("looking-on") as client:
        client.receive(1)
        travelled.razzo.must("reset-offset", "looking-on", "Orders", "0")
        messages = client.receive_all()
        client.ack(messages)
    bodies = {
        place(message): zlib.decompress(message.body) if message.system_properties.body_encoding == 2 else message.body
        for message in messages
    }
    return [text for _, text in sorted(bodies.items())]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    yield desk
    desk.stop()


# -- Apache first ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apache_served(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Travelled]:
    travelled = Travelled(tmp_path_factory.mktemp("hand-over"), desk)
    apache = travelled.apache
    try:
        apache.start()
        apache.call("create_topic", topic="Orders", queues=QUEUES)
        apache.call("create_topic", topic="Ledger", queues=3, type="FIFO")
        apache.call("create_topic", topic="Archive", queues=1, permission=4)
        apache.call("create_group", groupName="strict", consumeMessageOrderly=True, retryMaxTimes=3, retryQueueNums=2)
        apache.call("send", messages=[request(number) for number in range(FIRST)])
        consume_with_apache(travelled)
        apache.stop()
        yield travelled
    finally:
        travelled.razzo.terminate()
        apache.kill()


def consume_with_apache(travelled: Travelled) -> None:
    """STEADY: five of each queue. RETRYING: the same, and sends two of them back. POPPING: twelve of whatever queues;
    one of them comes back as a retry at once and one is out for ten minutes."""
    apache = travelled.apache
    for queue_id in range(QUEUES):
        assert len(apache.call("consume", topic="Orders", queue_id=queue_id, group=STEADY, count=5)) == 5
    for queue_id, back in enumerate([{"2": 1}, {"3": NOT_DUE_IN_THIS_TEST}]):
        apache.call("consume", topic="Orders", queue_id=queue_id, group=RETRYING, count=5, send_back=back)
    with travelled.pop(POPPING) as client:
        got: dict[tuple[int, int], Any] = {}
        while len(got) < 12:
            got |= {place(message): message for message in client.receive(3, invisible_s=600)}
        travelled.popped = sorted(got)
        retried, kept = travelled.popped[0], travelled.popped[-1]
        client.ack([message for where, message in got.items() if where not in (retried, kept)])
        client.change_invisible(got[retried], 1)
    for retry_topic in (f"%RETRY%{RETRYING}", f"%RETRY%{POPPING}_Orders"):
        wait_until(lambda topic=retry_topic: queue_end(apache, topic), REVIVE_S_MAX, f"a message in {retry_topic}")


def queue_end(apache: ApacheBroker, topic: str) -> int:
    return int(apache.call("max_offset", topic=topic))


# -- Apache to Razzo, clean --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def razzo_up(apache_served: Travelled) -> Travelled:
    assert not (apache_served.root / "abort").exists()
    apache_served.razzo.start()
    return apache_served


def test_topics_are_imported(razzo_up: Travelled) -> None:
    topics = {topic["name"]: topic for topic in razzo_up.razzo.must("topics")["topics"]}
    assert {
        name: (topics[name]["type"], topics[name]["read_queues"], topics[name]["write_queues"])
        for name in ("Orders", "Ledger", "Archive")
    } == {"Orders": ("NORMAL", 2, 2), "Ledger": ("FIFO", 3, 3), "Archive": ("NORMAL", 1, 1)}
    assert topics["Archive"]["permission"] != topics["Orders"]["permission"]
    refused = razzo_up.razzo.admin("produce", "Archive", "x")
    assert refused.exit_code == 1, refused
    assert "no queue is writable" in refused.stderr
    assert [queue["max_offset"] for queue in topics["Orders"]["queues"]] == [10, 10]


def test_groups_are_imported(razzo_up: Travelled) -> None:
    groups = {group["name"]: group for group in razzo_up.razzo.must("groups")["groups"]}
    assert {STEADY, RETRYING, POPPING, "strict"} <= set(groups)
    assert (groups["strict"]["fifo"], groups["strict"]["max_attempts"]) == (True, 4)
    assert (groups[STEADY]["fifo"], groups[STEADY]["max_attempts"]) == (False, 17)


def test_positions_are_imported(razzo_up: Travelled) -> None:
    wanted = {STEADY: {0: (5, 5), 1: (5, 5)}, RETRYING: {0: (2, 5), 1: (3, 5)}}
    for group, queues in wanted.items():
        found = razzo_up.positions(group)
        assert {queue: (at["committed_offset"], at["next_offset"]) for queue, at in found.items()} == queues
    popping = razzo_up.positions(POPPING)
    out = (razzo_up.popped[0], razzo_up.popped[-1])
    for queue_id in range(QUEUES):
        next_offset = len(razzo_up.popped_of(queue_id))
        floor = min((at for queue, at in out if queue == queue_id), default=next_offset)
        at = popping.get(queue_id, {"committed_offset": 0, "next_offset": 0})
        assert (at["committed_offset"], at["next_offset"]) == (floor, next_offset)


@pytest.fixture(scope="module")
def razzo_served(razzo_up: Travelled) -> Travelled:
    """All three groups go on; STEADY leaves the newest message of each queue; eight messages more are sent."""
    travelled = razzo_up
    travelled.first_bodies = razzo_bodies(travelled)
    for group in (RETRYING, POPPING):
        with travelled.receive(group) as client:
            messages = client.receive_all()
            client.ack(messages)
            travelled.got[group] = messages
    with travelled.receive(STEADY) as client:
        for number in range(FIRST, FIRST + 8):
            client.send(body(number), "TagB", f"key-{number}")
        messages = client.receive_all()
        travelled.got[STEADY] = messages
        travelled.left = dict(sorted(map(place, messages)))
        client.ack([message for message in messages if place(message) not in travelled.left.items()])
    return travelled


def test_razzo_serves_every_message_of_apache(razzo_served: Travelled) -> None:
    numbers = [*range(0, FIRST, 2), *range(1, FIRST, 2)]
    assert razzo_served.first_bodies == [body(number) for number in numbers]
    for number in (0, LARGE, FIRST - 1):
        (found,) = razzo_served.razzo.must("message", "--key", f"key-{number}", "--topic", "Orders")["messages"]
        assert (found["queue_id"], found["queue_offset"]) == (number % 2, number // 2)
        (by_id,) = razzo_served.razzo.must("message", found["offset_message_id"], "--topic", "Orders")["messages"]
        assert by_id["properties"]["number"] == str(number)


def test_groups_go_on_where_they_were(razzo_served: Travelled) -> None:
    got = {
        group: sorted((*place(each), each.system_properties.delivery_attempt) for each in messages)
        for group, messages in razzo_served.got.items()
    }
    first = {group: [each for each in where if each[1] < FIRST // 2] for group, where in got.items()}
    starts = {STEADY: [5, 5], RETRYING: [5, 5], POPPING: [len(razzo_served.popped_of(queue)) for queue in (0, 1)]}
    rest = {
        group: {(queue, at, 1) for queue in range(QUEUES) for at in range(start[queue], FIRST // QUEUES)}
        for group, start in starts.items()
    }
    assert set(first[STEADY]) == rest[STEADY]
    assert set(first[RETRYING]) == rest[RETRYING] | {(0, 2, 2)}
    assert set(first[POPPING]) == rest[POPPING] | {(*razzo_served.popped[0], 2)}
    assert {group: len(where) for group, where in got.items()} == {RETRYING: 11, POPPING: 9, STEADY: 18}
    sent = [each for each in razzo_served.got[STEADY] if each.system_properties.tag == "TagB"]
    assert sorted(each.body for each in sent) == [b"message %d" % n for n in range(FIRST, FIRST + 8)]


# -- Razzo to Apache, clean --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apache_again(razzo_served: Travelled) -> Travelled:
    assert razzo_served.razzo.stop() == 0
    assert not (razzo_served.root / "abort").exists()
    razzo_served.apache.start()
    return razzo_served


def assert_apache_finds(travelled: Travelled, number: int) -> None:
    """By key and by id, a message of Razzo's or Apache's."""
    (found,) = travelled.apache.call("by_key", topic="Orders", key=f"key-{number}", begin_ms=0, end_ms=1 << 50)
    assert base64.b64decode(found["body"]) == body(number)
    by_id = travelled.apache.call("by_physical_offset", topic="Orders", physical_offset=found["physical_offset"])
    assert by_id["offset_message_id"] == found["offset_message_id"]


def test_apache_serves_old_and_new(apache_again: Travelled) -> None:
    assert sorted(apache_bodies(apache_again)) == sorted(body(number) for number in range(FIRST + 8))
    for number in (0, LARGE, FIRST - 1, FIRST, FIRST + 7):
        assert_apache_finds(apache_again, number)


def test_apache_takes_the_files_that_razzo_wrote(apache_again: Travelled) -> None:
    topics = apache_again.config("topics")["topicConfigTable"]
    assert topics["Ledger"]["attributes"] == {"message.type": "FIFO"}
    assert [topics["Archive"][key] for key in ("perm", "readQueueNums", "writeQueueNums")] == [4, 1, 1]
    strict = apache_again.config("subscriptionGroup")["subscriptionGroupTable"]["strict"]
    assert [strict[key] for key in ("consumeMessageOrderly", "retryMaxTimes", "retryQueueNums")] == [True, 3, 2]
    apache_again.apache.call("send", messages=[request(number) for number in range(FIRST + 8, FIRST + 12)])


@pytest.fixture(scope="module")
def apache_went_on(apache_again: Travelled) -> Travelled:
    """STEADY and POPPING, from where Razzo left them."""
    travelled = apache_again
    travelled.apache.call("create_topic", topic="Later", queues=1)
    travelled.apache_got = [
        (message["queue_id"], message["queue_offset"])
        for queue_id in range(QUEUES)
        for message in travelled.apache.call("consume", topic="Orders", queue_id=queue_id, group=STEADY, count=1)
    ]
    with travelled.pop(POPPING) as client:
        travelled.got["popping at apache"] = messages = client.receive_all()
        client.ack(messages)
    wait_until(lambda: travelled.config("consumerOffset")["offsetTable"][f"Orders@{STEADY}"] ==
               {str(queue): at + 1 for queue, at in travelled.left.items()},
               FILES_S_MAX, "Apache's consumerOffset.json")  # fmt: skip
    travelled.apache.kill()
    return travelled


def test_a_classic_group_goes_on_from_razzos_positions(apache_went_on: Travelled) -> None:
    assert dict(apache_went_on.apache_got) == apache_went_on.left


def test_a_pop_group_goes_on_from_the_oldest_message_it_had_out(apache_went_on: Travelled) -> None:
    got = {place(message): message.body for message in apache_went_on.got["popping at apache"]}
    assert {body(number) for number in range(FIRST + 8, FIRST + 12)} <= set(got.values())
    assert apache_went_on.popped[-1] in got
    assert not {where for where in apache_went_on.popped if where < apache_went_on.popped[-1]} & set(got)


# -- Apache to Razzo, killed -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def razzo_up_again(apache_went_on: Travelled) -> Travelled:
    assert (apache_went_on.root / "abort").exists()
    apache_went_on.razzo.start()
    return apache_went_on


def test_razzo_goes_on_after_a_killed_apache(razzo_up_again: Travelled) -> None:
    travelled = razzo_up_again
    everything = sorted(body(number) for number in range(FIRST + 12))
    assert sorted(razzo_bodies(travelled)) == everything
    assert "Later" in {topic["name"] for topic in travelled.razzo.must("topics")["topics"]}
    steady = {queue: at["next_offset"] for queue, at in travelled.positions(STEADY).items()}
    assert steady == {queue: at + 1 for queue, at in travelled.left.items()}
    with travelled.receive(STEADY) as client:
        messages = client.receive_all()
        assert sorted(each.body for each in messages) == [body(n) for n in range(FIRST + 8, FIRST + 12)]
        client.ack(messages)


# -- Razzo to Apache, killed -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apache_at_last(razzo_up_again: Travelled) -> Travelled:
    travelled = razzo_up_again
    with travelled.receive(STEADY) as client:
        for number in range(FIRST + 12, FIRST + 16):
            client.send(body(number), "TagB", f"key-{number}")
        client.ack(client.receive_all())
    ends = {str(queue): at["max_offset"] for queue, at in travelled.positions(STEADY).items()}
    wait_until(lambda: travelled.config("consumerOffset")["offsetTable"][f"Orders@{STEADY}"] == ends, FILES_S_MAX,
               "Razzo's consumerOffset.json")  # fmt: skip
    travelled.razzo.kill()
    travelled.apache.proxy = False
    travelled.apache.start()
    return travelled


def test_apache_goes_on_after_a_killed_razzo(apache_at_last: Travelled) -> None:
    travelled = apache_at_last
    assert sorted(apache_bodies(travelled)) == sorted(body(number) for number in range(FIRST + 16))
    for number in (0, FIRST + 7, FIRST + 15):
        assert_apache_finds(travelled, number)
    for queue_id in range(QUEUES):
        left = travelled.apache.call("consume", topic="Orders", queue_id=queue_id, group=STEADY, count=32)
        assert left == []
    travelled.apache.call("send", messages=[request(FIRST + 16)])
    (last,) = travelled.apache.call("consume", topic="Orders", queue_id=0, group=STEADY, count=32)
    assert base64.b64decode(last["body"]) == body(FIRST + 16)
