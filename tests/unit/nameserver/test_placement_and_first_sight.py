"""Which broker a send goes to, and which brokers have yet to hear of a group."""

from __future__ import annotations

from collections import Counter

import pytest

from razzo.nameserver.first_sight import FirstSight
from razzo.nameserver.placement import Placement
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime.routes import Serving
from razzo.v1 import config_pb2, registry_pb2


def serving(*names: str, permission: int = 6, run: str = "run-1") -> list[Serving]:
    config = config_pb2.TopicConfig(name="t", read_queues=1, write_queues=1, permission=permission)
    return [Serving(registry_pb2.BrokerInfo(broker_name=name, incarnation=f"{name}-{run}"), config) for name in names]


def test_ordinary_messages_take_turns_by_topic() -> None:
    placement = Placement()
    brokers = serving("a", "b", "c")
    assert [placement.broker_for("t", brokers).broker_name for _ in range(5)] == ["a", "b", "c", "a", "b"]
    assert placement.broker_for("other", brokers).broker_name == "a"


def test_a_message_group_stays_and_moves_only_when_its_broker_is_gone() -> None:
    placement = Placement()
    four, three = serving("a", "b", "c", "d"), serving("a", "b", "d")
    before = {key: placement.broker_for("t", four, key).broker_name for key in map(str, range(400))}
    again = {key: Placement().broker_for("t", list(reversed(four)), key).broker_name for key in before}
    assert before == again, "another nameserver, another order: the same brokers"
    after = {key: placement.broker_for("t", three, key).broker_name for key in before}
    assert {key for key in before if before[key] != after[key]} == {key for key in before if before[key] == "c"}
    assert min(Counter(before.values()).values()) > 50, "no broker is left out"


def test_closed_brokers_get_nothing() -> None:
    placement = Placement()
    mixed = [*serving("a", permission=4), *serving("b")]
    assert {placement.broker_for("t", mixed, str(key)).broker_name for key in range(20)} == {"b"}
    with pytest.raises(RequestRefused) as refused:
        placement.broker_for("t", serving("a", permission=4))
    assert refused.value.code is Code.FORBIDDEN


def test_turns_are_bounded() -> None:
    placement = Placement(turns_max=2)
    brokers = serving("a", "b")
    for name in ("x", "y", "x", "z"):
        placement.broker_for(name, brokers)
    assert placement.broker_for("x", brokers).broker_name == "a", "forgotten, so it starts again"


def test_a_broker_is_told_once_for_each_of_its_runs() -> None:
    sight = FirstSight()
    brokers = serving("a", "b")
    assert sight.to_tell("g", "t", brokers) == [each.broker for each in brokers]
    sight.told("g", "t", brokers[0].broker)
    assert sight.to_tell("g", "t", brokers) == [brokers[1].broker]
    assert len(sight.to_tell("g", "other", brokers)) == 2
    assert len(sight.to_tell("other", "t", brokers)) == 2
    restarted = serving("a", run="run-2")
    assert sight.to_tell("g", "t", restarted) == [restarted[0].broker]


def test_what_gone_brokers_were_told_is_forgotten() -> None:
    sight = FirstSight()
    (a, b) = serving("a", "b")
    sight.told("g", "t", a.broker)
    sight.told("g", "t", b.broker)
    sight.retain([b.broker])
    assert len(sight) == 1
    assert sight.to_tell("g", "t", [a, b]) == [a.broker]


def test_memory_is_bounded() -> None:
    sight = FirstSight(seen_max=3)
    (a,) = serving("a")
    for number in range(4):
        sight.told(f"g{number}", "t", a.broker)
    assert len(sight) == 1
    assert sight.to_tell("g0", "t", [a]) == [a.broker], "told again rather than never"
