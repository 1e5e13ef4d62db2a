"""ClusterAdmin of a real nameserver: asks every broker, and says who is where when not all did it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from nameserver.nameserver_process import Client, NameserverProcess
from nameserver.scripted_broker import ScriptedBroker, topic

from razzo.protocol import methods
from razzo.v1 import admin_pb2, config_pb2

Status = grpc.StatusCode


def fails(status: grpc.StatusCode, details: str) -> Callable[..., Any]:
    async def abort(request: bytes, context: Any) -> None:
        await context.abort(status, details)

    return abort


async def test_a_new_topic_is_made_on_every_broker(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a") as a, ScriptedBroker("b") as b:
        put = admin_pb2.PutTopicRequest(topic=topic("orders"))
        for broker in (a, b):
            broker.script[methods.PUT_TOPIC] = admin_pb2.PutTopicResponse(topic=put.topic)
            await broker.start(nameserver.peer_address)
        for admin in (client.admin, client.peer_admin):
            assert (await admin.PutTopic(put, timeout=5)).topic == put.topic
        for broker in (a, b):
            assert [call.request for call in broker.of(methods.PUT_TOPIC)] == [put.SerializeToString()] * 2


async def test_an_update_also_makes_the_topic_where_it_is_missing(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("b") as b:
        for broker in (a, b):
            broker.script[methods.PUT_TOPIC] = admin_pb2.PutTopicResponse(topic=topic("orders", 5))
            await broker.start(nameserver.peer_address)
        put = admin_pb2.PutTopicRequest(topic=topic("orders", 5))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.admin.PutTopic(put, timeout=5)
        assert refused.value.code() is Status.ALREADY_EXISTS
        assert not a.received
        assert not b.received
        put.update = True
        await client.admin.PutTopic(put, timeout=5)
        updates = [
            admin_pb2.PutTopicRequest.FromString(broker.of(methods.PUT_TOPIC)[0].request).update for broker in (a, b)
        ]
        assert updates == [True, False]


async def test_a_half_done_call_says_who_is_where(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a") as a, ScriptedBroker("b") as b, ScriptedBroker("c") as c:
        a.script[methods.PUT_GROUP] = admin_pb2.PutGroupResponse()
        b.script[methods.PUT_GROUP] = fails(Status.RESOURCE_EXHAUSTED, "too many groups")
        for broker in (a, b, c):
            await broker.start(nameserver.peer_address)
        await c.lose_peer_port()
        put = admin_pb2.PutGroupRequest(group=config_pb2.GroupConfig(name="g"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.admin.PutGroup(put, timeout=5)
        details = refused.value.details() or ""
        assert refused.value.code() is Status.UNAVAILABLE
        assert "done on a;" in details
        assert "b: RESOURCE_EXHAUSTED too many groups" in details
        assert f"c: UNAVAILABLE 127.0.0.1:{c.peer_port} cannot be reached" in details


async def test_what_every_broker_refuses_alike_is_refused_in_its_words(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a") as a, ScriptedBroker("b") as b:
        for broker in (a, b):
            broker.script[methods.PUT_TOPIC] = fails(Status.INVALID_ARGUMENT, "a topic needs queues")
            await broker.start(nameserver.peer_address)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.admin.PutTopic(admin_pb2.PutTopicRequest(topic=topic("orders", 0)), timeout=5)
        assert (refused.value.code(), refused.value.details()) == (Status.INVALID_ARGUMENT, "a topic needs queues")


async def test_deleting_asks_the_brokers_that_have_it(nameserver: NameserverProcess, client: Client) -> None:
    group = config_pb2.GroupConfig(name="g")
    async with ScriptedBroker("a", topic("orders"), groups=(group,)) as a, ScriptedBroker("b") as b:
        a.script[methods.DELETE_TOPIC] = admin_pb2.DeleteTopicResponse()
        a.script[methods.DELETE_GROUP] = admin_pb2.DeleteGroupResponse()
        await a.start(nameserver.peer_address)
        await b.start(nameserver.peer_address)
        await client.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="orders"), timeout=5)
        await client.admin.DeleteGroup(admin_pb2.DeleteGroupRequest(name="g"), timeout=5)
        assert not b.received
        for call in (
            client.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="none"), timeout=5),
            client.admin.DeleteGroup(admin_pb2.DeleteGroupRequest(name="none"), timeout=5),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is Status.NOT_FOUND


async def test_figures_of_all_brokers_are_put_together(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("b", topic("orders")) as b, ScriptedBroker("a", topic("orders")) as a:
        for broker in (a, b):
            name = broker.name
            position = admin_pb2.GroupPosition(topic=name)
            broker.script |= {
                methods.LIST_TOPICS: admin_pb2.ListTopicsResponse(topics=[admin_pb2.TopicStatus(broker_name=name)]),
                methods.LIST_GROUPS: admin_pb2.ListGroupsResponse(groups=[admin_pb2.GroupStatus(broker_name=name)]),
                methods.FIND_MESSAGES: admin_pb2.FindMessagesResponse(
                    messages=[admin_pb2.StoredMessage(broker_name=name)] * 2
                ),
                methods.RESET_OFFSET: admin_pb2.ResetOffsetResponse(positions=[position]),
            }
            await broker.start(nameserver.peer_address)
        topics = await client.admin.ListTopics(admin_pb2.ListTopicsRequest(), timeout=5)
        assert [each.broker_name for each in topics.topics] == ["a", "b"]
        groups = await client.admin.ListGroups(admin_pb2.ListGroupsRequest(), timeout=5)
        assert [each.broker_name for each in groups.groups] == ["a", "b"]
        found = await client.admin.FindMessages(admin_pb2.FindMessagesRequest(key="k", max_count=3), timeout=5)
        assert [each.broker_name for each in found.messages] == ["a", "a", "b"]
        reset = admin_pb2.ResetOffsetRequest(group="g", topic="orders")
        assert [p.topic for p in (await client.admin.ResetOffset(reset, timeout=5)).positions] == ["a", "b"]
        a.script[methods.RESET_OFFSET] = fails(Status.NOT_FOUND, "there is no group 'g'")
        assert [p.topic for p in (await client.admin.ResetOffset(reset, timeout=5)).positions] == ["b"]
        described = await client.admin.DescribeBrokers(admin_pb2.DescribeBrokersRequest(), timeout=5)
        assert list(described.brokers) == [a.info(), b.info()]


async def test_without_brokers_nothing_can_be_asked(nameserver: NameserverProcess, client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.admin.ListTopics(admin_pb2.ListTopicsRequest(), timeout=5)
    assert refused.value.code() is Status.UNAVAILABLE
    assert "no broker is registered" in (refused.value.details() or "")


async def test_administration_can_be_kept_off_the_client_port(
    start_nameserver: Callable[..., NameserverProcess],
) -> None:
    nameserver = start_nameserver("--no-admin-on-client-port")
    async with Client(nameserver) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.admin.DescribeBrokers(admin_pb2.DescribeBrokersRequest(), timeout=5)
        assert refused.value.code() is Status.UNIMPLEMENTED
        assert not (await client.peer_admin.DescribeBrokers(admin_pb2.DescribeBrokersRequest(), timeout=5)).brokers
