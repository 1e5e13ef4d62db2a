"""`razzo admin` on messages: produce and consume are clients like any other, message finds what is stored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from razzo_cluster import Cluster

Names = Callable[[str], str]


@pytest.fixture
def topic(shared_cluster: Cluster, unique: Names) -> str:
    name = unique("topic")
    shared_cluster.must("create-topic", name, "--queues", "4")
    return name


@pytest.fixture
def group(shared_cluster: Cluster, unique: Names) -> str:
    name = unique("group")
    shared_cluster.must("create-group", name)
    return name


def test_what_is_sent_arrives_as_it_was(shared_cluster: Cluster, topic: str, group: str) -> None:
    words = ["--tag", "blue", "--key", "k1", "--key", "k2", "--property", "a=b=c", "--property", "ü=€"]
    (sent,) = shared_cluster.must("produce", topic, "héllo wörld", *words)["sent"]
    (got,) = shared_cluster.must("consume", topic, "--group", group, "--from-start")["messages"]
    assert got["message_id"] == sent["message_id"]
    assert got["queue_offset"] == sent["offset"]
    assert (got["topic"], got["body"], got["tag"], got["keys"]) == (topic, "héllo wörld", "blue", ["k1", "k2"])
    assert got["properties"] == {"a": "b=c", "ü": "€"}
    assert got["delivery_attempt"] == 1
    assert abs(got["store_timestamp_ms"] - time.time() * 1_000) < 60_000


def test_lines_of_standard_input_are_messages(shared_cluster: Cluster, topic: str, group: str) -> None:
    lines = [b"line %d" % number for number in range(500)] + [b"\xff\xfe not text"]
    sent = shared_cluster.must("produce", topic, input=b"\n".join(lines))["sent"]
    assert len({one["message_id"] for one in sent}) == len(lines)
    got = shared_cluster.must("consume", topic, "--group", group, "--from-start", "--max", str(len(lines)))["messages"]
    assert sorted(one["body"] for one in got if "body" in one) == sorted(line.decode() for line in lines[:-1])
    assert [one["body_base64"] for one in got if "body_base64" in one] == ["//4gbm90IHRleHQ="]


def test_nothing_on_standard_input_is_nothing_sent(shared_cluster: Cluster, topic: str) -> None:
    assert shared_cluster.must("produce", topic, input=b"") == {"sent": []}


def test_messages_of_a_message_group_stay_in_order(shared_cluster: Cluster, unique: Names) -> None:
    topic, group = unique("topic"), unique("group")
    shared_cluster.must("create-topic", topic, "--type", "fifo", "--queues", "4")
    shared_cluster.must("create-group", group, "--fifo")
    bodies = [f"{number}" for number in range(20)]
    shared_cluster.must("produce", topic, *bodies, "--message-group", "orders")
    got = shared_cluster.must("consume", topic, "--group", group, "--from-start", "--max", "20")["messages"]
    assert [one["body"] for one in got] == bodies
    assert {one["message_group"] for one in got} == {"orders"}
    assert len({one["queue_id"] for one in got}) == 1


def test_the_type_must_fit_the_topic(shared_cluster: Cluster, topic: str) -> None:
    result = shared_cluster.admin("produce", topic, "x", "--message-group", "orders")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE" in result.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([""], "MESSAGE_BODY_EMPTY"),
        (["x", "--tag", "a|b"], "ILLEGAL_MESSAGE_TAG"),
        (["x", "--key", " "], "ILLEGAL_MESSAGE_KEY"),
        (["x", "--property", "UNIQ_KEY=1"], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    ],
)
def test_what_no_client_may_send_is_refused(shared_cluster: Cluster, topic: str, words: list[str], code: str) -> None:
    result = shared_cluster.admin("produce", topic, *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert code in result.stderr


def test_a_failure_in_the_middle_tells_what_was_sent_before(shared_cluster: Cluster, topic: str) -> None:
    lines = [b"x"] * 200 + [b""] + [b"y"] * 5_000
    result = shared_cluster.admin("produce", topic, input=b"\n".join(lines))
    assert result.exit_code == 1
    sent = len(json.loads(result.stdout)["sent"])
    # What was on its way at the failure still arrived; nothing was started afterwards.
    assert 200 <= sent < 1_000
    assert f"sent before: {sent}" in result.stderr
    (listed,) = (one for one in shared_cluster.must("topics")["topics"] if one["name"] == topic)
    assert sum(queue["max_offset"] for queue in listed["queues"]) == sent


def test_a_topic_that_is_not_there(shared_cluster: Cluster, unique: Names, group: str) -> None:
    name = unique("topic")
    for words in (["produce", name, "x"], ["consume", name, "--group", group]):
        result = shared_cluster.admin(*words)
        assert (result.exit_code, result.stdout) == (1, ""), result
        assert name in result.stderr
        assert "TOPIC_NOT_FOUND" in result.stderr


def test_consume_ends_after_its_time_with_exit_code_5(shared_cluster: Cluster, topic: str, group: str) -> None:
    started = time.monotonic()
    result = shared_cluster.admin("consume", topic, "--group", group, "--wait", "1s")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "no message of" in result.stderr
    assert 0.9 < time.monotonic() - started < 15


def test_a_message_stays_leased_without_acknowledgement_and_is_done_with_it(
    shared_cluster: Cluster, topic: str, group: str
) -> None:
    def outstanding() -> int:
        (found,) = (one for one in shared_cluster.must("groups")["groups"] if one["name"] == group)
        return sum(position["outstanding"] for position in found["positions"])

    consume = ["consume", topic, "--group", group]
    shared_cluster.must("produce", topic, "one")
    (leased,) = shared_cluster.must(*consume, "--from-start", "--no-ack", "--invisible", "10m")["messages"]
    assert outstanding() == 1
    # Nobody else gets it meanwhile; moving the group drops the lease.
    assert shared_cluster.admin(*consume, "--wait", "500ms").exit_code == 5
    (again,) = shared_cluster.must(*consume, "--from-start")["messages"]
    assert again["message_id"] == leased["message_id"]
    assert again["receipt_handle"] != leased["receipt_handle"]
    assert outstanding() == 0
    assert shared_cluster.admin(*consume, "--wait", "500ms").exit_code == 5


def test_filters(shared_cluster: Cluster, topic: str, unique: Names) -> None:
    for tag in ("a", "b", "c"):
        shared_cluster.must("produce", topic, tag, "--tag", tag)

    def bodies(*words: str) -> list[str]:
        group = unique("group")
        shared_cluster.must("create-group", group)
        consume = ["consume", topic, "--group", group, "--from-start", "--max", "3", "--wait", "2s"]
        return sorted(one["body"] for one in shared_cluster.must(*consume, *words)["messages"])

    assert bodies("--filter", "a || c") == ["a", "c"]
    assert bodies() == ["a", "b", "c"]


def test_an_sql_filter_is_answered_with_what_is_the_matter(shared_cluster: Cluster, topic: str, group: str) -> None:
    """The broker serves no SQL filters yet; that is said, and nothing is received in their place."""
    shared_cluster.must("produce", topic, "x", "--property", "price=1")
    result = shared_cluster.admin("consume", topic, "--group", group, "--from-start", "--sql", "price > 2")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "SQL" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_messages_are_found_by_either_id_and_by_key(shared_cluster: Cluster, topic: str, unique: Names) -> None:
    key = unique("key")
    (sent,) = shared_cluster.must("produce", topic, "find me", "--tag", "t", "--key", key)["sent"]
    shared_cluster.must("produce", topic, "not me", "--key", unique("key"))
    (by_id,) = shared_cluster.must("message", sent["message_id"], "--topic", topic)["messages"]
    assert (by_id["topic"], by_id["body"], by_id["queue_offset"]) == (topic, "find me", sent["offset"])
    assert by_id["properties"]["KEYS"] == key
    assert by_id["properties"]["TAGS"] == "t"
    assert shared_cluster.must("message", sent["message_id"])["messages"] == [by_id]
    assert shared_cluster.must("message", by_id["offset_message_id"])["messages"] == [by_id]
    assert shared_cluster.must("message", "--key", key, "--topic", topic)["messages"] == [by_id]


@pytest.mark.parametrize(
    "words", [["0100000000000000000000000000000000"], ["--key", "no-such-key", "--topic", "TOPIC"]]
)
def test_a_message_that_is_not_there_is_exit_code_5(shared_cluster: Cluster, topic: str, words: list[str]) -> None:
    result = shared_cluster.admin("message", *(word.replace("TOPIC", topic) for word in words))
    assert (result.exit_code, result.stdout) == (5, "")
    assert "no message with" in result.stderr
