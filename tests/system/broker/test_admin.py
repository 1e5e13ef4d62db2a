"""ClusterAdmin on the peer port: topics, groups, positions, messages."""

from __future__ import annotations

import time

import grpc
import pytest
from broker.in_process import Code, TopicType

from razzo.protocol import limits, methods
from razzo.v1 import admin_pb2, config_pb2

T, G = "orders", "billing"


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def topics(admin, **request):
    answer = await admin.call(methods.LIST_TOPICS, admin_pb2.ListTopicsRequest(**request))
    return {status.topic.name: status for status in answer.topics}


async def test_a_topic_with_defaults(admin):
    put = await admin.call(methods.PUT_TOPIC, admin_pb2.PutTopicRequest(topic=config_pb2.TopicConfig(name=T)))
    assert (put.topic.read_queues, put.topic.write_queues) == (limits.QUEUES_PER_TOPIC_DEFAULT,) * 2
    assert (put.topic.permission, put.topic.type) == (6, TopicType.NORMAL)
    assert (await topics(admin))[T].topic == put.topic


async def test_update_changes_what_it_names(admin, client):
    await admin.topic(T, queues=2)
    config = config_pb2.TopicConfig(name=T, read_queues=4, write_queues=4, attributes={"a": "b"})
    await admin.call(methods.PUT_TOPIC, admin_pb2.PutTopicRequest(topic=config, update=True))
    status = (await topics(admin))[T]
    assert (status.topic.read_queues, status.topic.permission, dict(status.topic.attributes)) == (4, 6, {"a": "b"})
    assert len(status.queues) == 4


async def test_topic_refusals(admin):
    await admin.topic(T, queues=2)
    code = grpc.StatusCode
    assert await refusal(admin.topic(T)) is code.ALREADY_EXISTS
    assert await refusal(admin.topic("unknown", update=True)) is code.NOT_FOUND
    assert await refusal(admin.topic(T, queues=1, update=True)) is code.FAILED_PRECONDITION
    assert await refusal(admin.topic(T, queues=2, kind=TopicType.FIFO, update=True)) is code.FAILED_PRECONDITION
    for name in ("", "a b", "x" * 128, "rmq_sys_mine", "SCHEDULE_TOPIC_XXXX"):
        assert await refusal(admin.topic(name)) is code.INVALID_ARGUMENT, name
    assert await refusal(admin.topic("x", queues=limits.QUEUES_PER_TOPIC_MAX + 1)) is code.INVALID_ARGUMENT
    assert await refusal(admin.topic("x", permission=5)) is code.INVALID_ARGUMENT
    writes = config_pb2.TopicConfig(name="x", read_queues=1, write_queues=2)
    request = admin_pb2.PutTopicRequest(topic=writes)
    assert await refusal(admin.call(methods.PUT_TOPIC, request)) is code.INVALID_ARGUMENT
    delete = admin_pb2.DeleteTopicRequest(name="unknown")
    assert await refusal(admin.call(methods.DELETE_TOPIC, delete)) is code.NOT_FOUND
    assert set(await topics(admin)) == {T}


async def test_a_deleted_topic_is_gone_with_its_messages(admin, client):
    await admin.topic(T)
    await client.subscribe(T, G)
    await client.send_ok(T)
    await admin.call(methods.DELETE_TOPIC, admin_pb2.DeleteTopicRequest(name=T))
    assert (await client.send(client.message(T))).status.code == Code.TOPIC_NOT_FOUND
    assert (await client.receive(T, G))[0].code == Code.TOPIC_NOT_FOUND
    assert await admin.positions(G, T) == []
    await admin.topic(T)
    await client.subscribe(T, G)
    assert (await client.send_ok(T, b"new")).offset == 0
    assert [message.body for message in await client.take(T, G)] == [b"new"]


async def test_system_topics_are_listed_on_request(admin):
    await admin.topic(T)
    assert set(await topics(admin)) == {T}
    assert {T, "rmq_sys_razzo_state"} <= set(await topics(admin, all=True))


async def test_a_topic_shows_its_queues(admin, client):
    await admin.topic(T, queues=2)
    for _ in range(3):
        await client.send_ok(T)
    queues = (await topics(admin))[T].queues
    assert [(queue.queue_id, queue.min_offset, queue.max_offset) for queue in queues] == [(0, 0, 2), (1, 0, 1)]


async def test_groups(admin, client):
    policy = {"exponential": {"initial_ms": 100, "max_ms": 1000, "multiplier": 2.0}}
    await admin.group(G, fifo=True, retry_max_times=3, retry_policy=policy)
    await admin.topic(T)
    await client.subscribe(T, G)
    await client.send_ok(T)
    await client.take(T, G)
    (status,) = (await admin.call(methods.LIST_GROUPS, admin_pb2.ListGroupsRequest())).groups
    assert (status.group.name, status.group.fifo, status.group.retry_max_times) == (G, True, 3)
    assert status.group.retry_policy.exponential.initial_ms == 100
    assert status.broker_name == "broker-a"
    assert list(status.client_ids) == [client.client_id]
    (position,) = status.positions
    assert (position.topic, position.queue_id) == (T, 0)
    assert (position.committed_offset, position.next_offset, position.outstanding, position.max_offset) == (0, 1, 1, 1)


async def test_group_refusals(admin):
    await admin.group(G)
    code = grpc.StatusCode
    assert await refusal(admin.group(G)) is code.ALREADY_EXISTS
    assert await refusal(admin.group("unknown", update=True)) is code.NOT_FOUND
    for name in ("", "a b", "x" * 121):
        assert await refusal(admin.group(name)) is code.INVALID_ARGUMENT, name
    for policy in (
        {"delays_ms": [-1]},
        {"delays_ms": [1] * 101},
        {"exponential": {"initial_ms": 10, "max_ms": 1, "multiplier": 2}},
        {"exponential": {"initial_ms": 1, "max_ms": 10, "multiplier": 0.5}},
    ):
        assert await refusal(admin.group("x", retry_policy=policy)) is code.INVALID_ARGUMENT, policy
    assert await refusal(admin.group("x", retry_max_times=10_001)) is code.INVALID_ARGUMENT
    delete = admin_pb2.DeleteGroupRequest(name="unknown")
    assert await refusal(admin.call(methods.DELETE_GROUP, delete)) is code.NOT_FOUND


async def test_a_deleted_group_starts_anew(admin, client):
    await admin.topic(T)
    await client.subscribe(T, G)
    await client.send_ok(T, b"old")
    await admin.call(methods.DELETE_GROUP, admin_pb2.DeleteGroupRequest(name=G))
    assert await client.take(T, G) == []
    await client.send_ok(T, b"new")
    assert [message.body for message in await client.take(T, G)] == [b"new"]


async def test_reset_offset_by_time(admin, client):
    await admin.topic(T)
    await client.subscribe(T, G)
    for n in range(3):
        await client.send_ok(T, b"%d" % n)
    messages = await client.take(T, G)
    await client.ack_ok(T, G, messages[0])

    async def reset(timestamp_ms, topic=T, group=G):
        request = admin_pb2.ResetOffsetRequest(group=group, topic=topic, timestamp_ms=timestamp_ms)
        return (await admin.call(methods.RESET_OFFSET, request)).positions

    (position,) = await reset(0)
    assert (position.next_offset, position.committed_offset, position.outstanding) == (0, 0, 0)
    again = await client.take(T, G)
    assert [message.body for message in again] == [b"0", b"1", b"2"]
    assert all(message.system_properties.delivery_attempt == 1 for message in again)
    assert (await client.ack(T, G, messages[1])).status.code == Code.INVALID_RECEIPT_HANDLE

    (position,) = await reset(int(time.time() * 1000) + 60_000)
    assert (position.next_offset, position.committed_offset, position.outstanding) == (3, 3, 0)
    assert await client.take(T, G) == []

    assert await refusal(reset(0, topic="unknown")) is grpc.StatusCode.NOT_FOUND
    assert await refusal(reset(0, group="unknown")) is grpc.StatusCode.NOT_FOUND


async def test_reset_wakes_a_waiting_receive(admin, client):
    import asyncio

    await admin.topic(T)
    await client.send_ok(T, b"old")
    await client.subscribe(T, G)
    waiting = asyncio.create_task(client.receive(T, G, poll_s=10))
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]
    await admin.call(methods.RESET_OFFSET, admin_pb2.ResetOffsetRequest(group=G, topic=T, timestamp_ms=0))
    _, messages, _ = await waiting
    assert [message.body for message in messages] == [b"old"]


class TestFindMessages:
    @pytest.fixture(autouse=True)
    async def stored(self, admin, client):
        await admin.topic(T)
        await admin.topic("other")
        await client.send_ok(T, b"first", message_id="id-1", keys=["k", "only-first"])
        await client.send_ok(T, b"second", message_id="id-2", keys=["k"], properties={"colour": "blue"})
        await client.send_ok("other", b"elsewhere", message_id="id-3", keys=["k"])

    async def find(self, admin, **request):
        return (await admin.call(methods.FIND_MESSAGES, admin_pb2.FindMessagesRequest(**request))).messages

    async def test_by_the_producers_id(self, admin):
        for request in ({"message_id": "id-2"}, {"message_id": "id-2", "topic": T}):
            (message,) = await self.find(admin, **request)
            assert (message.body, message.topic, message.broker_name) == (b"second", T, "broker-a")
            assert message.properties["colour"] == "blue"
        assert list(await self.find(admin, message_id="id-2", topic="other")) == []

    async def test_by_the_place_in_the_log(self, admin):
        (message,) = await self.find(admin, message_id="id-2")
        (same,) = await self.find(admin, message_id=message.offset_message_id)
        assert same == message

    async def test_by_key(self, admin):
        assert {message.body for message in await self.find(admin, topic=T, key="k")} == {b"first", b"second"}
        assert [message.body for message in await self.find(admin, topic=T, key="only-first")] == [b"first"]
        assert len(await self.find(admin, topic=T, key="k", max_count=1)) == 1
        assert list(await self.find(admin, topic=T, key="k", begin_ms=int(time.time() * 1000) + 60_000)) == []
        assert list(await self.find(admin, topic=T, key="k", begin_ms=1, end_ms=2)) == []

    async def test_nothing_found(self, admin):
        assert list(await self.find(admin, message_id="id-9")) == []
        assert list(await self.find(admin, message_id="7F00000100002A9F00000000FFFFFFFF")) == []

    async def test_refusals(self, admin):
        for request in ({}, {"key": "k"}, {"key": "k", "message_id": "i"}, {"key": "k", "topic": "a b"}):
            assert await refusal(self.find(admin, **request)) is grpc.StatusCode.INVALID_ARGUMENT, request


async def test_describe_brokers(broker, admin):
    await admin.topic(T)
    await admin.group(G)
    (info,) = (await admin.call(methods.DESCRIBE_BROKERS, admin_pb2.DescribeBrokersRequest())).brokers
    assert (info.cluster, info.broker_name, info.broker_id) == ("DefaultCluster", "broker-a", 0)
    assert f"{info.client_plain.host}:{info.client_plain.port}" == broker.address()
    assert f"{info.peer.host}:{info.peer.port}" == broker.address("peer")
    assert [topic.name for topic in info.topics] == [T]
    assert [group.name for group in info.groups] == [G]


async def test_health(broker):
    from grpc_health.v1 import health_pb2

    raw = await broker.channel("peer").unary_unary(methods.HEALTH_CHECK)(b"")
    assert health_pb2.HealthCheckResponse.FromString(raw).status == health_pb2.HealthCheckResponse.SERVING


async def test_administration_is_not_on_the_client_port(client):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.channel.unary_unary(methods.LIST_TOPICS)(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
