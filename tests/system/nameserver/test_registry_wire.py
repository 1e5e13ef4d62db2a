"""Brokers on the Register stream of a real nameserver process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest
from nameserver.nameserver_process import Client, NameserverProcess, resource, until_async
from nameserver.scripted_broker import OK, ScriptedBroker, code_of, handle, topic

from apache.rocketmq.v2 import service_pb2
from razzo.protocol import methods
from razzo.protocol.codes import Code
from razzo.v1 import registry_pb2


async def test_a_beat_is_acknowledged_with_the_view(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:
        registration = await (await broker.start()).register(nameserver.peer_address)
        assert registration.acked == 1
        assert registration.views == [["a"]]
        await registration.beat()
        assert registration.acked == 2
        assert registration.views == [["a"]], "an unchanged beat must not send the view again"
        view = await client.registry.DescribeCluster(registry_pb2.DescribeClusterRequest(), timeout=5)
        assert list(view.brokers) == [broker.info()]


async def test_every_broker_gets_the_view_when_another_comes_or_goes(nameserver: NameserverProcess) -> None:
    async with ScriptedBroker("b") as b:
        first = await (await b.start()).register(nameserver.peer_address)
        async with ScriptedBroker("a") as a:
            await a.start(nameserver.peer_address)
            await first.wait(lambda: first.views[-1] == ["a", "b"])
        await first.wait(lambda: first.views[-1] == ["b"])
        assert first.views == [["b"], ["a", "b"], ["b"]]


async def test_a_lost_connection_takes_the_broker_out_at_once(nameserver: NameserverProcess, client: Client) -> None:
    """At once: the scan for silent brokers runs every 10 s and looks for 120 s of silence, so it is not the scan."""
    async with ScriptedBroker("a", topic("orders")) as broker:
        registration = await (await broker.start()).register(nameserver.peer_address)
        assert await client.view() == ["a"]
        await registration.cut()

        async def is_gone() -> bool:
            return await client.view() == []

        await until_async(is_gone, "the broker is still shown", timeout_s=5)


async def test_a_topic_is_routed_when_its_beat_is_acknowledged(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a") as broker:
        await broker.start(nameserver.peer_address)
        query = service_pb2.QueryRouteRequest(topic=resource("later"), endpoints=client.endpoints)
        assert code_of(await client.call("QueryRoute", query)) is Code.TOPIC_NOT_FOUND
        await broker.put_topic(topic("later"))
        assert code_of(await client.call("QueryRoute", query)) is Code.OK


async def test_a_newer_run_of_a_broker_takes_over(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", client_port=1001) as old, ScriptedBroker("a", client_port=1002) as new:
        first = await (await old.start()).register(nameserver.peer_address)
        await new.start(nameserver.peer_address)
        await first.wait(lambda: first.ended is not None)
        assert first.ended is grpc.StatusCode.ALREADY_EXISTS
        assert "a registered again" in first.details
        view = await client.registry.DescribeCluster(registry_pb2.DescribeClusterRequest(), timeout=5)
        assert list(view.brokers) == [new.info()], "the end of the old stream must not take the new run out"


async def test_a_leaving_broker_is_out_of_routes_but_its_handles_still_work(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:
        broker.script[methods.ACK_MESSAGE] = service_pb2.AckMessageResponse(status=OK)
        registration = await (await broker.start()).register(nameserver.peer_address)
        await registration.beat(leaving=True)
        assert await client.view() == []
        ack = service_pb2.AckMessageRequest(group=resource("g"), topic=resource("orders"))
        ack.entries.add(message_id="m", receipt_handle=handle("a"))
        assert code_of(await client.call("AckMessage", ack)) is Code.OK
        await registration.beat(full=True)
        assert await client.view() == ["a"], "a full beat without `leaving` brings it back"


async def test_a_silent_broker_expires(start_nameserver: Callable[..., NameserverProcess]) -> None:
    nameserver = start_nameserver("--broker-expiry-ms=200", "--scan-interval-ms=20")
    async with Client(nameserver) as client, ScriptedBroker("a") as broker:
        registration = await (await broker.start()).register(nameserver.peer_address)
        await registration.wait(lambda: registration.ended is not None)
        assert registration.ended is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await client.view() == []


async def test_two_nameservers_answer_alike(start_nameserver: Callable[..., NameserverProcess]) -> None:
    nameservers = start_nameserver("--address-mode=direct"), start_nameserver("--address-mode=direct")
    async with ScriptedBroker("b", topic("orders")) as b, ScriptedBroker("a", topic("orders", 3)) as a:
        await b.start(*(nameserver.peer_address for nameserver in nameservers))
        await a.start(*(nameserver.peer_address for nameserver in reversed(nameservers)))
        routes, assignments = [], []
        for nameserver in nameservers:
            async with Client(nameserver) as client:
                query = service_pb2.QueryRouteRequest(topic=resource("orders"), endpoints=client.endpoints)
                routes.append((await client.call("QueryRoute", query)).SerializeToString())
                ask = service_pb2.QueryAssignmentRequest(topic=resource("orders"), group=resource("g"))
                assignments.append((await client.call("QueryAssignment", ask)).SerializeToString())
        assert routes[0] == routes[1]
        assert assignments[0] == assignments[1]
        names = [q.broker.name for q in service_pb2.QueryRouteResponse.FromString(routes[0]).message_queues]
        assert names == ["a", "a", "a", "b", "b"]
        assert await asyncio.to_thread(nameservers[0].stop) == 0
        async with Client(nameservers[1]) as client:
            assert await client.view() == ["a", "b"], "one nameserver's end is nothing to the other"


@pytest.mark.parametrize(
    ("beat", "why"),
    [
        (registry_pb2.BrokerBeat(sequence=1), "first beat"),
        (registry_pb2.BrokerBeat(sequence=1, broker=registry_pb2.BrokerInfo(incarnation="i")), "broker name"),
        (registry_pb2.BrokerBeat(sequence=0), "came after"),
    ],
)
async def test_beats_that_make_no_sense_end_the_stream(client: Client, beat: registry_pb2.BrokerBeat, why: str) -> None:
    stream = client.registry.Register()
    await stream.write(beat)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert why in (refused.value.details() or "")
