"""QueryRoute and QueryAssignment of a real nameserver: addresses, refusals, waiting and making of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from nameserver.nameserver_process import Client, NameserverProcess, endpoints, resource, until
from nameserver.scripted_broker import OK, ScriptedBroker, code_of, topic

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol import methods
from razzo.protocol.codes import Code
from razzo.v1 import admin_pb2, config_pb2

READ_WRITE = definition_pb2.Permission.READ_WRITE


def addresses_of(route: Any) -> set[tuple[str, str, int]]:
    """(broker, host, port) of every queue."""
    return {
        (queue.broker.name, address.host, address.port)
        for queue in route.message_queues
        for address in queue.broker.endpoints.addresses
    }


async def route(client: Client, name: str, dialled: definition_pb2.Endpoints | None = None) -> Any:
    query = service_pb2.QueryRouteRequest(topic=resource(name), endpoints=dialled or client.endpoints)
    return await client.call("QueryRoute", query)


async def test_a_route_lists_every_queue_of_every_broker(nameserver: NameserverProcess, client: Client) -> None:
    fifo = config_pb2.TopicType.FIFO
    async with (
        ScriptedBroker("b", topic("orders", 1, fifo), client_port=1002) as b,
        ScriptedBroker("a", topic("orders", 2, fifo), client_port=1001) as a,
    ):
        await b.start(nameserver.peer_address)
        await a.start(nameserver.peer_address)
        answer = await route(client, "orders")
        assert code_of(answer) is Code.OK
        seen = [
            (q.broker.name, q.id, q.permission, list(q.accept_message_types), q.broker.id, q.topic.name)
            for q in answer.message_queues
        ]
        types = [definition_pb2.MessageType.FIFO]
        assert seen == [(n, i, READ_WRITE, types, 0, "orders") for n, i in (("a", 0), ("a", 1), ("b", 0))]
        assert addresses_of(answer) == {("a", "127.0.0.1", 1001), ("b", "127.0.0.1", 1002)}
        assert answer.message_queues[0].broker.endpoints.scheme == definition_pb2.AddressScheme.IPv4
        assert (await route(client, "orders")).SerializeToString() == answer.SerializeToString()


async def test_tls_calls_are_told_tls_ports(nameserver: NameserverProcess) -> None:
    async with ScriptedBroker("a", topic("orders"), client_port=1001, tls_port=1443) as broker:
        await broker.start(nameserver.peer_address)
        async with Client(nameserver, tls=True) as secure, Client(nameserver) as plain:
            assert addresses_of(await route(secure, "orders")) == {("a", "127.0.0.1", 1443)}
            assert addresses_of(await route(plain, "orders")) == {("a", "127.0.0.1", 1001)}


@pytest.mark.parametrize(
    ("flags", "advertised", "dialled", "through"),
    [
        ((), "127.0.0.1", ("127.0.0.1", 8081), False),  # one machine
        ((), "127.0.0.1", ("localhost", 8081), False),
        ((), "127.0.0.1", ("192.0.2.7", 18081), True),  # port mapping
        ((), "192.0.2.9", ("localhost", 8081), True),  # port forwarding into a cluster
        ((), "192.0.2.9", ("example.test", 80), True),  # a load balancer outside
        (("--inside-hosts=.svc.test",), "192.0.2.9", ("ns.svc.test", 8081), False),
        (("--address-mode=through",), "127.0.0.1", ("127.0.0.1", 8081), True),
        (("--address-mode=direct",), "127.0.0.1", ("192.0.2.7", 18081), False),
    ],
)
async def test_a_route_names_brokers_or_what_the_client_dialled(
    start_nameserver: Callable[..., NameserverProcess],
    flags: tuple[str, ...],
    advertised: str,
    dialled: tuple[str, int],
    through: bool,
) -> None:
    nameserver = start_nameserver(*flags)
    async with Client(nameserver) as client, ScriptedBroker("a", topic("t", 1), client_host=advertised) as broker:
        await broker.start(nameserver.peer_address)
        answer = await route(client, "t", endpoints(*dialled))
        assert addresses_of(answer) == {("a", *dialled) if through else ("a", advertised, 10911)}
        ask = service_pb2.QueryAssignmentRequest(
            topic=resource("t"), group=resource("g"), endpoints=endpoints(*dialled)
        )
        assignment = (await client.call("QueryAssignment", ask)).assignments[0].message_queue
        assert assignment.broker.endpoints == answer.message_queues[0].broker.endpoints


async def test_a_broker_without_tls_is_served_through_the_nameserver(nameserver: NameserverProcess) -> None:
    async with ScriptedBroker("a", topic("t"), tls_port=None) as broker:
        await broker.start(nameserver.peer_address)
        async with Client(nameserver, tls=True) as client:
            dialled = endpoints("localhost", 1)
            assert addresses_of(await route(client, "t", dialled)) == {("a", "localhost", 1)}


async def test_refusals(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("closed", permission=0), topic("write-only", permission=2)) as broker:
        await broker.start(nameserver.peer_address)
        assert code_of(await route(client, "nowhere")) is Code.TOPIC_NOT_FOUND
        assert code_of(await route(client, "rmq_sys_razzo_state")) is Code.ILLEGAL_TOPIC
        assert code_of(await route(client, "no spaces")) is Code.ILLEGAL_TOPIC
        assert code_of(await route(client, "closed")) is Code.FORBIDDEN
        ask = service_pb2.QueryAssignmentRequest(topic=resource("write-only"), group=resource("g"))
        assert code_of(await client.call("QueryAssignment", ask)) is Code.FORBIDDEN
        ask.group.name = "no spaces"
        assert code_of(await client.call("QueryAssignment", ask)) is Code.ILLEGAL_CONSUMER_GROUP
        client.metadata = (("x-mq-client-id", ""),)
        assert code_of(await route(client, "nowhere")) is Code.CLIENT_ID_REQUIRED


async def test_without_any_broker_the_fault_is_ours(nameserver: NameserverProcess, client: Client) -> None:
    answer = await route(client, "orders")
    assert code_of(answer) is Code.INTERNAL_SERVER_ERROR
    assert "no broker is registered" in answer.status.message


async def test_the_namespace_may_come_by_header_or_by_field(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("blue%orders")) as broker:
        await broker.start(nameserver.peer_address)
        by_field = definition_pb2.Resource(resource_namespace="blue", name="orders")
        answer = await client.call("QueryRoute", service_pb2.QueryRouteRequest(topic=by_field))
        assert code_of(answer) is Code.OK
        assert {q.topic.resource_namespace for q in answer.message_queues} == {"blue"}, "echoed as sent"
        client.metadata = (*client.metadata, ("x-mq-namespace", "blue"))
        answer = await route(client, "orders")
        assert code_of(answer) is Code.OK
        assert {q.topic.resource_namespace for q in answer.message_queues} == {""}, "echoed as sent"


async def test_a_fresh_nameserver_waits_for_the_brokers_of_a_topic(
    start_nameserver: Callable[..., NameserverProcess],
) -> None:
    nameserver = start_nameserver(settle_ms=30_000)
    async with Client(nameserver) as client, ScriptedBroker("a", topic("orders")) as broker:
        asked = asyncio.create_task(route(client, "orders"))
        await broker.start(nameserver.peer_address)
        assert code_of(await asked) is Code.OK


async def test_an_unknown_topic_is_made_on_every_broker(start_nameserver: Callable[..., NameserverProcess]) -> None:
    nameserver = start_nameserver("--auto-create-topics", "--auto-create-topic-queues=3")

    def make(broker: ScriptedBroker) -> Callable[..., Any]:
        async def put(request: bytes, context: Any) -> admin_pb2.PutTopicResponse:
            config = admin_pb2.PutTopicRequest.FromString(request).topic
            await broker.put_topic(config)
            return admin_pb2.PutTopicResponse(topic=config)

        return put

    async with Client(nameserver) as client, ScriptedBroker("a") as a, ScriptedBroker("b") as b:
        for broker in (a, b):
            broker.script[methods.PUT_TOPIC] = make(broker)
            await broker.start(nameserver.peer_address)
        answers = await asyncio.gather(*(route(client, "fresh") for _ in range(8)))
        assert {code_of(answer) for answer in answers} == {Code.OK}
        assert [(q.broker.name, q.id) for q in answers[0].message_queues] == [(n, i) for n in "ab" for i in range(3)]
        assert [len(broker.of(methods.PUT_TOPIC)) for broker in (a, b)] == [1, 1], "eight clients, one topic"
        made = admin_pb2.PutTopicRequest.FromString(a.of(methods.PUT_TOPIC)[0].request).topic
        assert (made.type, made.permission, made.write_queues) == (config_pb2.TopicType.NORMAL, 6, 3)


async def test_a_topic_that_no_broker_makes_is_refused_with_its_reason(
    start_nameserver: Callable[..., NameserverProcess],
) -> None:
    nameserver = start_nameserver("--auto-create-topics")

    async def refuse(request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "20000 topics already")

    async with Client(nameserver) as client, ScriptedBroker("a") as broker:
        broker.script[methods.PUT_TOPIC] = refuse
        await broker.start(nameserver.peer_address)
        answer = await route(client, "fresh")
        assert code_of(answer) is Code.TOO_MANY_REQUESTS
        assert "20000 topics already" in answer.status.message


# --- consumer groups at first sight


async def test_the_brokers_of_a_topic_hear_of_a_group_before_its_client_is_answered(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("other", topic("else")) as other:
        await a.start(nameserver.peer_address)
        await other.start(nameserver.peer_address)
        ask = service_pb2.QueryAssignmentRequest(
            topic=resource("orders"), group=resource("g"), endpoints=client.endpoints
        )
        answer = await client.call("QueryAssignment", ask)
        assert [a.message_queue.id for a in answer.assignments] == [-1]
        assert [a.message_queue.permission for a in answer.assignments] == [READ_WRITE]
        told = a.of(methods.QUERY_ASSIGNMENT)
        assert [call.request for call in told] == [ask.SerializeToString()]
        assert told[0].metadata["x-mq-client-id"] == "client@1"
        assert told[0].metadata["x-razzo-forwarded"] == "1"
        assert told[0].metadata["x-razzo-peer"].startswith("ipv4:127.0.0.1:")
        assert not other.of(methods.QUERY_ASSIGNMENT), "it does not serve the topic"
        again = await client.call("QueryAssignment", ask)
        assert again.SerializeToString() == answer.SerializeToString()
        assert len(a.of(methods.QUERY_ASSIGNMENT)) == 1, "once told is enough"


async def test_a_broker_that_refused_a_group_is_told_again(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:
        bad = definition_pb2.Status(code=definition_pb2.Code.INTERNAL_SERVER_ERROR, message="later")
        broker.script[methods.QUERY_ASSIGNMENT] = service_pb2.QueryAssignmentResponse(status=bad)
        await broker.start(nameserver.peer_address)
        ask = service_pb2.QueryAssignmentRequest(topic=resource("orders"), group=resource("g"))
        assert code_of(await client.call("QueryAssignment", ask)) is Code.OK, "the assignment is the nameserver's own"
        broker.script[methods.QUERY_ASSIGNMENT] = service_pb2.QueryAssignmentResponse(status=OK)
        await client.call("QueryAssignment", ask)
        await client.call("QueryAssignment", ask)
        assert len(broker.of(methods.QUERY_ASSIGNMENT)) == 2


async def test_heartbeats_and_goodbyes_reach_the_brokers_of_the_client(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("other", topic("else")) as other:
        await a.start(nameserver.peer_address)
        await other.start(nameserver.peer_address)
        beat = service_pb2.HeartbeatRequest(
            group=resource("g"), client_type=definition_pb2.ClientType.PUSH_CONSUMER
        )
        assert code_of(await client.call("Heartbeat", beat)) is Code.OK, "also for an unknown client"
        ask = service_pb2.QueryAssignmentRequest(topic=resource("orders"), group=resource("g"))
        await client.call("QueryAssignment", ask)
        assert code_of(await client.call("Heartbeat", beat)) is Code.OK
        await until(lambda: a.of(methods.HEARTBEAT), "the heartbeat did not reach the broker")
        assert [call.request for call in a.of(methods.HEARTBEAT)] == [beat.SerializeToString()]
        assert not other.of(methods.HEARTBEAT)
        goodbye = service_pb2.NotifyClientTerminationRequest(group=resource("g"))
        assert code_of(await client.call("NotifyClientTermination", goodbye)) is Code.OK
        for broker in (a, other):
            assert len(broker.of(methods.NOTIFY_CLIENT_TERMINATION)) == 1, "the client may be known on any broker"
        assert code_of(await client.call("Heartbeat", service_pb2.HeartbeatRequest())) is Code.OK, "Go sends it empty"
