"""`razzo admin` on topics and consumer groups: each took effect when it says so, and says why when not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from razzo_cluster import COMMANDS, AdminResult, Cluster

Names = Callable[[str], str]


def refused(result: AdminResult, *words: str, code: int = 1) -> None:
    """The command failed with one line on standard error that holds the words, and nothing on standard output."""
    assert result.exit_code == code, result
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert all(word in result.stderr for word in words), result.stderr


@pytest.mark.parametrize("kind", ["normal", "FIFO", "Delay", "transaction", "PRIORITY", "Lite"])
def test_a_topic_of_each_type_in_any_case(shared_cluster: Cluster, unique: Names, kind: str) -> None:
    name = unique("topic")
    created = shared_cluster.must("create-topic", name, "--type", kind, "--queues", "3")["topic"]
    assert created == {
        "name": name,
        "type": kind.upper(),
        "read_queues": 3,
        "write_queues": 3,
        "permission": 6,
        "attributes": created["attributes"],
    }
    queues = shared_cluster.must("route", name)["queues"]
    assert sorted(queue["queue_id"] for queue in queues) == [0, 1, 2]
    assert {tuple(queue["types"]) for queue in queues} == {(kind.upper(),)}
    assert {queue["permission"] for queue in queues} == {"READ_WRITE"}


def test_a_mixed_topic_takes_every_type(shared_cluster: Cluster, unique: Names) -> None:
    name = unique("topic")
    assert shared_cluster.must("create-topic", name, "--type", "mixed")["topic"]["type"] == "MIXED"
    types = set(shared_cluster.must("route", name)["queues"][0]["types"])
    assert {"NORMAL", "FIFO", "DELAY", "TRANSACTION"} <= types


def test_a_topic_is_created_once_and_changed_with_update(shared_cluster: Cluster, unique: Names) -> None:
    name = unique("topic")
    shared_cluster.must("create-topic", name, "--queues", "2")
    refused(shared_cluster.admin("create-topic", name, "--queues", "4"), name)
    assert len(shared_cluster.must("route", name)["queues"]) == 2
    shared_cluster.must("create-topic", name, "--queues", "4", "--update")
    assert len(shared_cluster.must("route", name)["queues"]) == 4
    other = unique("topic")
    shared_cluster.must("create-topic", other, "--queues", "2", "--update")
    assert len(shared_cluster.must("route", other)["queues"]) == 2


@pytest.mark.parametrize("name", ["white space", "ünicode", "a" * 128, "rmq_sys_razzo_state", ""])
def test_a_name_that_cannot_be_is_refused(shared_cluster: Cluster, name: str) -> None:
    refused(shared_cluster.admin("create-topic", name))
    assert name not in {topic["name"] for topic in shared_cluster.must("topics")["topics"]}


def test_a_deleted_topic_is_gone_at_once(shared_cluster: Cluster, unique: Names) -> None:
    name = unique("topic")
    shared_cluster.must("create-topic", name)
    assert shared_cluster.must("delete-topic", name) == {"deleted": name}
    refused(shared_cluster.admin("route", name), name, "TOPIC_NOT_FOUND")
    refused(shared_cluster.admin("delete-topic", name), name)
    assert name not in {topic["name"] for topic in shared_cluster.must("topics")["topics"]}
    # A topic that is made again under the name begins empty.
    shared_cluster.must("create-topic", name, "--queues", "1")
    assert shared_cluster.must("produce", name, "first")["sent"][0]["offset"] == 0


def test_topics_lists_queues_with_their_offsets(shared_cluster: Cluster, unique: Names) -> None:
    name = unique("topic")
    shared_cluster.must("create-topic", name, "--queues", "2")
    shared_cluster.must("produce", name, "a", "b", "c")
    (topic,) = (one for one in shared_cluster.must("topics")["topics"] if one["name"] == name)
    assert (topic["type"], topic["permission"], topic["broker_name"] != "") == ("NORMAL", 6, True)
    assert sorted(queue["queue_id"] for queue in topic["queues"]) == [0, 1]
    assert sum(queue["max_offset"] - queue["min_offset"] for queue in topic["queues"]) == 3
    everything = {one["name"] for one in shared_cluster.must("topics", "--all")["topics"]}
    assert {one["name"] for one in shared_cluster.must("topics")["topics"]} < everything


def test_a_read_only_topic_takes_nothing(shared_cluster: Cluster, unique: Names) -> None:
    name = unique("topic")
    shared_cluster.must("create-topic", name, "--permission", "read")
    refused(shared_cluster.admin("produce", name, "x"), name, "takes no messages")


def test_a_group_with_its_settings(shared_cluster: Cluster, unique: Names) -> None:
    name = unique("group")
    words = ["--fifo", "--max-attempts", "3", "--retry-delays", "1s,500ms,2m"]
    created = shared_cluster.must("create-group", name, *words)["group"]
    (listed,) = (group for group in shared_cluster.must("groups")["groups"] if group["name"] == name)
    for group in (created, listed):
        assert (group["fifo"], group["max_attempts"], group["consume_enabled"]) == (True, 3, True)
        assert group["retry_delays_ms"] == [1_000, 500, 120_000]
    refused(shared_cluster.admin("create-group", name), name)
    changed = shared_cluster.must("create-group", name, "--max-attempts", "5", "--update")["group"]
    assert (changed["fifo"], changed["max_attempts"]) == (False, 5)


def test_a_group_has_rocketmqs_attempts_unless_told_otherwise(shared_cluster: Cluster, unique: Names) -> None:
    assert shared_cluster.must("create-group", unique("group"))["group"]["max_attempts"] == 17


def test_a_deleted_group_is_gone(shared_cluster: Cluster, unique: Names) -> None:
    name = unique("group")
    shared_cluster.must("create-group", name)
    assert shared_cluster.must("delete-group", name) == {"deleted": name}
    assert name not in {group["name"] for group in shared_cluster.must("groups")["groups"]}
    refused(shared_cluster.admin("delete-group", name), name)


def test_a_lite_group_knows_its_topic(shared_cluster: Cluster, unique: Names) -> None:
    topic, group = unique("topic"), unique("group")
    shared_cluster.must("create-topic", topic, "--type", "lite")
    assert shared_cluster.must("create-group", group, "--lite", topic)["group"]["lite_topic"] == topic


def test_positions_of_a_group(shared_cluster: Cluster, unique: Names) -> None:
    topic, group = unique("topic"), unique("group")
    shared_cluster.must("create-topic", topic, "--queues", "1")
    shared_cluster.must("create-group", group)
    shared_cluster.must("produce", topic, "a", "b", "c")
    shared_cluster.must("consume", topic, "--group", group, "--from-start")
    (position,) = (
        position
        for one in shared_cluster.must("groups")["groups"]
        if one["name"] == group
        for position in one["positions"]
        if position["topic"] == topic
    )
    assert (position["queue_id"], position["max_offset"]) == (0, 3)
    assert (position["committed_offset"], position["next_offset"], position["outstanding"]) == (1, 1, 0)


def test_reset_offset_to_a_point_in_time(shared_cluster: Cluster, unique: Names) -> None:
    topic, group = unique("topic"), unique("group")
    shared_cluster.must("create-topic", topic, "--queues", "1")
    shared_cluster.must("create-group", group)
    shared_cluster.must("produce", topic, "early")
    middle = shared_cluster.must("produce", topic, "late")["sent"][0]["message_id"]
    (stored,) = shared_cluster.must("message", middle)["messages"]
    positions = shared_cluster.must("reset-offset", group, topic, str(stored["store_timestamp_ms"]))["positions"]
    assert [position["next_offset"] for position in positions] in ([0], [1])  # both in one millisecond, or not
    positions = shared_cluster.must("reset-offset", group, topic, "0")["positions"]
    assert [position["next_offset"] for position in positions] == [0]
    bodies = [one["body"] for one in shared_cluster.must("consume", topic, "--group", group, "--max", "2")["messages"]]
    assert bodies == ["early", "late"]
    for _ in range(2):
        shared_cluster.must("reset-offset", group, topic, "0")
        again = shared_cluster.must("consume", topic, "--group", group, "--max", "1")["messages"]
        assert [one["body"] for one in again] == ["early"]


def test_reset_offset_of_what_is_not_there(shared_cluster: Cluster, unique: Names) -> None:
    topic, group = unique("topic"), unique("group")
    shared_cluster.must("create-group", group)
    refused(shared_cluster.admin("reset-offset", group, topic, "0"), topic)


def test_brokers(shared_cluster: Cluster) -> None:
    (broker,) = shared_cluster.must("brokers")["brokers"]
    assert broker["broker_id"] == 0
    client = shared_cluster.ready["services"]["broker"]["client"]
    assert broker["client"] == f"{client['host']}:{client['port']}"


@pytest.mark.parametrize(
    ("words", "heads"),
    [
        (["topics"], "TOPIC  "),
        (["groups"], "GROUP  "),
        (["brokers"], "CLUSTER  "),
    ],
)
def test_lists_for_people_are_tables(shared_cluster: Cluster, unique: Names, words: list[str], heads: str) -> None:
    shared_cluster.must("create-topic", unique("topic"))
    command = [str(COMMANDS / "razzo"), "admin", *words, "--endpoint", shared_cluster.endpoint]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0].startswith(heads.rstrip())
    assert len(lines) > 1


def test_nobody_at_the_endpoint(shared_cluster: Cluster) -> None:
    command = [str(COMMANDS / "razzo"), "admin", "--endpoint", "127.0.0.1:1", "topics"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused(AdminResult(done.returncode, done.stdout, done.stderr), "nobody answers at 127.0.0.1:1", code=3)


def test_a_brokers_port_says_that_it_is_the_wrong_one(shared_cluster: Cluster) -> None:
    client = shared_cluster.ready["services"]["broker"]["client"]
    refused(shared_cluster.admin("topics", "--endpoint", f"{client['host']}:{client['port']}"), "nameserver", code=4)
