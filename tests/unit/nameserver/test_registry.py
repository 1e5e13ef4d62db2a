"""The registry core, beat by beat, on a clock that the test moves."""

from __future__ import annotations

import pytest

from razzo.nameserver.registry import BROKER_EXPIRY_MS, Registry
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.v1 import config_pb2, registry_pb2


def info(
    name: str = "a", *, broker_id: int = 0, incarnation: str = "run-1", version: int = 1, topics: tuple[str, ...] = ()
) -> registry_pb2.BrokerInfo:
    address = registry_pb2.Address(host="10.0.0.1", port=1)
    return registry_pb2.BrokerInfo(
        cluster="c",
        broker_name=name,
        broker_id=broker_id,
        incarnation=incarnation,
        client_plain=address,
        peer=address,
        data_version=version,
        topics=[config_pb2.TopicConfig(name=topic) for topic in topics],
    )


def full(sequence: int, broker: registry_pb2.BrokerInfo, *, leaving: bool = False) -> registry_pb2.BrokerBeat:
    return registry_pb2.BrokerBeat(sequence=sequence, broker=broker, leaving=leaving)


def unchanged(sequence: int, *, leaving: bool = False) -> registry_pb2.BrokerBeat:
    return registry_pb2.BrokerBeat(sequence=sequence, leaving=leaving)


def names(registry: Registry) -> list[str]:
    return [f"{broker.broker_name}/{broker.broker_id}" for broker in registry.view().brokers]


def test_a_full_beat_puts_a_broker_into_the_view() -> None:
    registry = Registry()
    assert registry.beat(1, full(1, info()), 0) == (1, True, None)
    assert names(registry) == ["a/0"]
    assert registry.beat(1, unchanged(2), 10) == (2, False, None)
    assert registry.beat(1, full(3, info()), 20) == (3, False, None), "the same again changes nothing"
    assert registry.version == 1


def test_the_view_is_ordered_by_name_and_id_whatever_the_order_of_arrival() -> None:
    registry = Registry()
    for connection, broker in enumerate((info("b"), info("a", broker_id=1), info("a"))):
        registry.beat(connection, full(1, broker), 0)
    assert names(registry) == ["a/0", "a/1", "b/0"]


def test_a_change_of_topics_changes_the_view() -> None:
    registry = Registry()
    registry.beat(1, full(1, info()), 0)
    assert registry.beat(1, full(2, info(version=2, topics=("orders",))), 0).changed
    assert registry.view().brokers[0].topics[0].name == "orders"


def test_the_end_of_the_stream_is_the_end_of_the_broker() -> None:
    registry = Registry()
    registry.beat(1, full(1, info()), 0)
    assert registry.disconnected(1)
    assert names(registry) == []
    assert registry.reachable("a") is None
    assert not registry.disconnected(1), "once is enough"


def test_silence_is_the_end_after_the_expiry_and_not_before() -> None:
    registry = Registry()
    registry.beat(1, full(1, info("a")), 0)
    registry.beat(2, full(1, info("b")), 0)
    registry.beat(2, unchanged(2), 50_000)
    assert registry.expire(BROKER_EXPIRY_MS) == []
    assert registry.expire(BROKER_EXPIRY_MS + 1) == [1]
    assert names(registry) == ["b/0"]
    assert registry.expire(50_000 + BROKER_EXPIRY_MS + 1) == [2]


def test_a_leaving_broker_can_be_reached_until_it_is_gone() -> None:
    registry = Registry()
    registry.beat(1, full(1, info()), 0)
    assert registry.beat(1, unchanged(2, leaving=True), 0).changed
    assert names(registry) == []
    assert registry.reachable("a") == info()
    registry.beat(1, unchanged(3), 0)
    assert names(registry) == [], "an unchanged beat does not bring it back"
    registry.beat(1, full(4, info()), 0)
    assert names(registry) == ["a/0"]
    registry.beat(1, full(5, info(), leaving=True), 0)
    assert registry.disconnected(1), "somebody was there, though not in the view"


def test_a_newer_run_supersedes_and_is_not_hurt_by_the_end_of_the_older_one() -> None:
    registry = Registry()
    registry.beat(1, full(1, info(incarnation="old")), 0)
    assert registry.beat(2, full(1, info(incarnation="new")), 0) == (1, True, 1)
    assert not registry.disconnected(1)
    assert [broker.incarnation for broker in registry.view().brokers] == ["new"]


@pytest.mark.parametrize(
    ("beat", "words"),
    [
        (unchanged(2), "the first beat"),
        (full(1, info("")), "1 to 255 bytes"),
        (full(1, info("ä" * 128)), "1 to 255 bytes"),
        (full(1, info(incarnation="")), "incarnation"),
        (full(1, info(broker_id=-1)), "0 or more"),
        (full(1, registry_pb2.BrokerInfo(broker_name="a", incarnation="i")), "peer"),
        (full(0, info()), "after a higher one"),
    ],
)
def test_beats_that_make_no_sense(beat: registry_pb2.BrokerBeat, words: str) -> None:
    registry = Registry()
    with pytest.raises(RequestRefused, match=words) as refused:
        registry.beat(1, beat, 0)
    assert refused.value.code is Code.BAD_REQUEST
    assert names(registry) == []


def test_what_a_connection_may_not_change() -> None:
    registry = Registry()
    registry.beat(1, full(1, info(version=5)), 0)
    for beat, words in (
        (full(2, info("b", version=5)), "keeps one broker"),
        (full(2, info(version=4)), "never goes back"),
        (unchanged(1), "after a higher one"),
    ):
        with pytest.raises(RequestRefused, match=words):
            registry.beat(1, beat, 0)
    assert names(registry) == ["a/0"]


def test_there_is_room_for_so_many_brokers_and_no_more() -> None:
    registry = Registry(brokers_max=2)
    registry.beat(1, full(1, info("a")), 0)
    registry.beat(2, full(1, info("b")), 0)
    with pytest.raises(RequestRefused) as refused:
        registry.beat(3, full(1, info("c")), 0)
    assert refused.value.code is Code.TOO_MANY_REQUESTS
    assert registry.beat(4, full(1, info("b", incarnation="run-2")), 0).superseded == 2, "a known one may come again"


def test_the_view_is_the_callers_own_view_of_then() -> None:
    registry = Registry()
    mine = info()
    registry.beat(1, full(1, mine), 0)
    mine.broker_name = "changed by the caller"
    assert names(registry) == ["a/0"]
