"""The registry in the process: who is told of changes, and waiting for them."""

from __future__ import annotations

import asyncio

from razzo.nameserver.cluster import Cluster
from razzo.nameserver.registry import Registry
from razzo.v1 import config_pb2, registry_pb2

WAIT_S = 5.0


def beat(sequence: int, *topics: str) -> registry_pb2.BrokerBeat:
    address = registry_pb2.Address(host="h", port=1)
    broker = registry_pb2.BrokerInfo(
        broker_name="a", incarnation="i", client_plain=address, peer=address, data_version=sequence
    )
    for name in topics:
        broker.topics.append(config_pb2.TopicConfig(name=name))
    return registry_pb2.BrokerBeat(sequence=sequence, broker=broker)


def unchanged(sequence: int, *, leaving: bool = False) -> registry_pb2.BrokerBeat:
    return registry_pb2.BrokerBeat(sequence=sequence, leaving=leaving)


async def test_listeners_hear_of_changes_only() -> None:
    now_ms = 0
    cluster = Cluster(Registry(expiry_ms=100), lambda: now_ms)
    heard: list[int] = []
    cluster.on_change(lambda: heard.append(len(cluster.book.masters())))
    connection = cluster.new_connection()
    cluster.beat(connection, beat(1))
    cluster.beat(connection, unchanged(2))
    assert heard == [1]
    cluster.beat(connection, unchanged(3, leaving=True))
    assert heard == [1, 0]
    assert [broker.broker_name for broker in cluster.connected()] == ["a"]
    cluster.disconnected(connection)
    assert heard == [1, 0, 0], "it could still be reached, and now cannot"
    assert cluster.connected() == []
    other = cluster.new_connection()
    assert other != connection
    cluster.beat(other, beat(1))
    now_ms = 101
    assert cluster.expire() == [other]
    assert cluster.expire() == []
    assert heard == [1, 0, 0, 1, 0]


async def test_waiting_ends_with_the_change_that_was_waited_for() -> None:
    cluster = Cluster(Registry(), lambda: 0)
    connection = cluster.new_connection()
    waiting = asyncio.create_task(cluster.wait_until(lambda: bool(cluster.book.serving("orders")), WAIT_S))
    cluster.beat(connection, beat(1))
    cluster.beat(connection, beat(2, "orders"))
    assert await asyncio.wait_for(waiting, WAIT_S)


async def test_waiting_has_an_end() -> None:
    cluster = Cluster(Registry(), lambda: 0)
    assert not await cluster.wait_until(lambda: False, 0.0)
    assert not await cluster.wait_until(lambda: False, -1.0)
    assert await cluster.wait_until(lambda: True, 0.0)
