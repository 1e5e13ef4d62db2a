"""Telemetry, heartbeats, routes, assignments, offsets, and what is refused politely."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from broker.in_process import Code, MessageType, TopicType, pb, resource, running

from apache.rocketmq.v2 import definition_pb2
from razzo.protocol import limits, methods

T, G = "orders", "billing"
Language = definition_pb2.Language
ClientType = definition_pb2.ClientType


def producer_settings(*topics):
    settings = definition_pb2.Settings(client_type=ClientType.PRODUCER)
    settings.publishing.topics.extend(resource(topic) for topic in topics)
    settings.user_agent.language = Language.JAVA
    return settings


def consumer_settings(group, *topics, client_type=ClientType.PUSH_CONSUMER):
    settings = definition_pb2.Settings(client_type=client_type)
    settings.subscription.group.CopyFrom(resource(group))
    for topic in topics:
        settings.subscription.subscriptions.add(topic=resource(topic))
    settings.user_agent.language = Language.PYTHON
    return settings


class Telemetry:
    """An open stream."""

    def __init__(self, client):
        self.call = client.channel.stream_stream(methods.TELEMETRY)(metadata=client.metadata())

    async def __aenter__(self):
        await self.call.initial_metadata()  # sent before anything was asked
        return self

    async def __aexit__(self, *_):
        self.call.cancel()

    async def ask(self, settings):
        await self.call.write(pb.TelemetryCommand(settings=settings).SerializeToString())
        return pb.TelemetryCommand.FromString(await asyncio.wait_for(self.call.read(), 5))


async def test_a_producers_settings(admin, client):
    await admin.topic(T)
    async with Telemetry(client) as stream:
        for _ in range(2):
            answer = await stream.ask(producer_settings(T))
            assert answer.status.code == Code.OK
            assert answer.settings.publishing.max_body_size == limits.MESSAGE_BODY_BYTES_MAX
            assert answer.settings.publishing.validate_message_type
            assert answer.settings.backoff_policy.HasField("exponential_backoff")


async def test_a_consumers_settings_come_from_its_group(admin, client):
    await admin.topic(T)
    await admin.group(G, fifo=True, retry_max_times=4)
    async with Telemetry(client) as stream:
        answer = await stream.ask(consumer_settings(G, T))
        assert answer.settings.subscription.fifo
        assert answer.settings.backoff_policy.max_attempts == 5
        assert answer.settings.subscription.receive_batch_size == limits.PUSH_BATCH_MESSAGES
        await admin.group(G, update=True, retry_max_times=9)
        assert (await stream.ask(consumer_settings(G, T))).settings.backoff_policy.max_attempts == 10


async def test_settings_fix_where_a_group_starts(admin, client):
    await admin.topic(T)
    async with Telemetry(client) as stream:
        await stream.ask(consumer_settings(G, T))
    await client.send_ok(T, b"after the settings")
    assert [message.body for message in await client.take(T, G)] == [b"after the settings"]


async def test_a_topic_made_after_its_subscription_is_read_from_its_beginning(admin, client):
    async with Telemetry(client) as stream:
        await stream.ask(consumer_settings(G, T))
        await admin.topic(T)
        await client.send_ok(T, b"first")
        assert [message.body for message in await client.take(T, G)] == [b"first"]


async def test_settings_that_nobody_can_work_with_end_the_stream(client):
    for settings in (definition_pb2.Settings(), consumer_settings("a b", T)):
        async with Telemetry(client) as stream:
            await stream.call.write(pb.TelemetryCommand(settings=settings).SerializeToString())
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.call.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_heartbeat_and_farewell_of_anybody(client):
    for request in (
        pb.HeartbeatRequest(),
        pb.HeartbeatRequest(client_type=ClientType.PRODUCER),
        pb.HeartbeatRequest(client_type=ClientType.PUSH_CONSUMER, group=resource(G)),
    ):
        assert (await client.call(methods.HEARTBEAT, request)).status.code == Code.OK
    bad = await client.call(methods.HEARTBEAT, pb.HeartbeatRequest(group=resource("a b")))
    assert bad.status.code == Code.ILLEGAL_CONSUMER_GROUP
    for _ in range(2):
        answer = await client.call(methods.NOTIFY_CLIENT_TERMINATION, pb.NotifyClientTerminationRequest())
        assert answer.status.code == Code.OK


@pytest.mark.parametrize(
    ("path", "request_type"),
    [
        (methods.HEARTBEAT, pb.HeartbeatRequest),
        (methods.QUERY_ROUTE, pb.QueryRouteRequest),
        (methods.QUERY_ASSIGNMENT, pb.QueryAssignmentRequest),
        (methods.CHANGE_INVISIBLE_DURATION, pb.ChangeInvisibleDurationRequest),
        (methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, pb.ForwardMessageToDeadLetterQueueRequest),
        (methods.NOTIFY_CLIENT_TERMINATION, pb.NotifyClientTerminationRequest),
        (methods.GET_OFFSET, pb.GetOffsetRequest),
        (methods.END_TRANSACTION, pb.EndTransactionRequest),
    ],
)
async def test_every_call_needs_a_client_id(client, path, request_type):
    assert (await client.call(path, request_type(), metadata=())).status.code == Code.CLIENT_ID_REQUIRED


@pytest.mark.parametrize(
    ("path", "request_type"),
    [
        (methods.END_TRANSACTION, pb.EndTransactionRequest),
        (methods.RECALL_MESSAGE, pb.RecallMessageRequest),
        (methods.SYNC_LITE_SUBSCRIPTION, pb.SyncLiteSubscriptionRequest),
    ],
)
async def test_not_served_yet(client, path, request_type):
    answer = await client.call(path, request_type())
    assert answer.status.code == Code.NOT_IMPLEMENTED
    assert "not served yet" in answer.status.message


# --- routes


async def route(client, topic):
    return await client.call(methods.QUERY_ROUTE, pb.QueryRouteRequest(topic=resource(topic)))


async def test_route(broker, admin, client):
    await admin.topic(T, queues=3)
    await admin.topic("ordered", kind=TopicType.FIFO)
    answer = await route(client, T)
    assert answer.status.code == Code.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2]
    for queue in answer.message_queues:
        (address,) = queue.broker.endpoints.addresses
        assert f"{address.host}:{address.port}" == broker.address()
        assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
        assert list(queue.accept_message_types) == [MessageType.NORMAL]
    assert list((await route(client, "ordered")).message_queues[0].accept_message_types) == [MessageType.FIFO]


async def test_route_refusals(client):
    assert (await route(client, "unknown")).status.code == Code.TOPIC_NOT_FOUND
    assert (await route(client, "a b")).status.code == Code.ILLEGAL_TOPIC


async def test_assignment(admin, client):
    await admin.topic(T, queues=3)
    answer = await client.subscribe(T, G)
    (assignment,) = answer.assignments
    assert (assignment.message_queue.id, assignment.message_queue.broker.name) == (-1, "broker-a")
    unknown = pb.QueryAssignmentRequest(topic=resource("unknown"), group=resource(G))
    assert (await client.call(methods.QUERY_ASSIGNMENT, unknown)).status.code == Code.TOPIC_NOT_FOUND
    bad = pb.QueryAssignmentRequest(topic=resource(T), group=resource("a b"))
    assert (await client.call(methods.QUERY_ASSIGNMENT, bad)).status.code == Code.ILLEGAL_CONSUMER_GROUP


# --- made on the fly


async def test_topics_and_groups_on_the_fly(tmp_path):
    async with running(tmp_path / "data", auto_create_topics=True, auto_create_topic_queues=4) as broker:
        client = broker.client()
        assert len((await route(client, "by-route")).message_queues) == 4
        entries = await asyncio.gather(*(client.send_ok("by-send", b"%d" % n) for n in range(10)))
        assert len(entries) == 10
        assert len((await route(client, "by-send")).message_queues) == 4
        status, _, _ = await client.receive("by-receive", G)
        assert status.code == Code.MESSAGE_NOT_FOUND
        for name in ("a b", "rmq_sys_x", ""):
            assert (await client.send(client.message(name))).status.code == Code.ILLEGAL_TOPIC, name
        assert (await route(client, "%DLQ%nobody")).status.code == Code.TOPIC_NOT_FOUND


async def test_groups_only_by_administration(tmp_path):
    async with running(tmp_path / "data", auto_create_groups=False) as broker:
        client, admin = broker.client(), broker.admin()
        await admin.topic(T)
        assert (await client.receive(T, G))[0].code == Code.CONSUMER_GROUP_NOT_FOUND
        async with Telemetry(client) as stream:
            assert (await stream.ask(consumer_settings(G, T))).status.code == Code.OK
        await admin.group(G)
        assert (await client.receive(T, G))[0].code == Code.MESSAGE_NOT_FOUND


async def test_bounds_of_topics_and_groups(tmp_path):
    async with running(tmp_path / "data", topics_max=1, groups_max=1) as broker:
        admin = broker.admin()
        await admin.topic(T)
        await admin.group(G)
        for call in (admin.topic("second"), admin.group("second")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


# --- pull and offsets


@pytest.fixture
async def filled(admin, client):
    await admin.topic(T, queues=2)
    await client.send(*(client.message(T, b"%d" % n, tag="even" if n % 2 == 0 else "odd") for n in range(5)))
    return T


def queue_of(topic, queue_id=0):
    queue = definition_pb2.MessageQueue(id=queue_id, topic=resource(topic))
    queue.broker.name = "broker-a"
    return queue


async def pull(client, topic, offset, *, queue_id=0, batch=32, expression="*", poll_s=0.0, group=G):
    """(code, bodies, next offset)"""
    request = pb.PullMessageRequest(
        group=resource(group), message_queue=queue_of(topic, queue_id), offset=offset, batch_size=batch
    )
    request.filter_expression.expression = expression
    request.long_polling_timeout.FromMilliseconds(int(poll_s * 1000))
    code, bodies, next_offset = None, [], None
    stream = client.channel.unary_stream(methods.PULL_MESSAGE)
    async for raw in stream(request.SerializeToString(), metadata=client.metadata(), timeout=10):
        answer = pb.PullMessageResponse.FromString(raw)
        match answer.WhichOneof("content"):
            case "status":
                code = answer.status.code
            case "message":
                bodies.append(answer.message.body)
            case "next_offset":
                next_offset = answer.next_offset
    return code, bodies, next_offset


async def test_pull(client, filled):
    assert await pull(client, filled, 0, batch=2) == (Code.OK, [b"0", b"1"], 2)
    assert await pull(client, filled, 2) == (Code.OK, [b"2", b"3", b"4"], 5)
    assert await pull(client, filled, 5) == (Code.MESSAGE_NOT_FOUND, [], 5)
    assert await pull(client, filled, 0, expression="odd") == (Code.OK, [b"1", b"3"], 5)
    assert await pull(client, filled, 0, expression="none") == (Code.MESSAGE_NOT_FOUND, [], 5)


async def test_pull_waits_for_the_next_message(admin, client):
    await admin.topic("single")
    waiting = [asyncio.create_task(pull(client, "single", 0, poll_s=5)) for _ in range(3)]
    assert not (await asyncio.wait(waiting, timeout=0.2))[0]
    await client.send_ok("single", b"new")
    assert await asyncio.gather(*waiting) == [(Code.OK, [b"new"], 1)] * 3


async def test_pull_refusals(client, filled):
    assert (await pull(client, filled, 6))[0] == Code.ILLEGAL_OFFSET
    assert (await pull(client, filled, -1))[0] == Code.ILLEGAL_OFFSET
    assert (await pull(client, filled, 0, queue_id=2))[0] == Code.BAD_REQUEST
    assert (await pull(client, "unknown", 0))[0] == Code.TOPIC_NOT_FOUND
    assert (await pull(client, filled, 0, group="a b"))[0] == Code.ILLEGAL_CONSUMER_GROUP


async def update(client, topic, offset, queue_id=0):
    request = pb.UpdateOffsetRequest(group=resource(G), message_queue=queue_of(topic, queue_id), offset=offset)
    return (await client.call(methods.UPDATE_OFFSET, request)).status.code


async def get(client, topic, queue_id=0):
    request = pb.GetOffsetRequest(group=resource(G), message_queue=queue_of(topic, queue_id))
    answer = await client.call(methods.GET_OFFSET, request)
    return answer.status.code, answer.offset


async def test_offsets(client, filled):
    assert await get(client, filled) == (Code.OFFSET_NOT_FOUND, 0)
    assert await update(client, filled, 3) == Code.OK
    assert await get(client, filled) == (Code.OK, 3)
    assert [message.body for message in await client.take(filled, G)] == [b"3", b"4"]
    assert await update(client, filled, 6) == Code.ILLEGAL_OFFSET
    assert await update(client, filled, 0, queue_id=7) == Code.BAD_REQUEST


async def test_query_offset(client, filled):
    async def query(policy, timestamp_ms=None):
        request = pb.QueryOffsetRequest(message_queue=queue_of(filled), query_offset_policy=policy)
        if timestamp_ms is not None:
            request.timestamp.FromMilliseconds(timestamp_ms)
        answer = await client.call(methods.QUERY_OFFSET, request)
        return answer.status.code, answer.offset

    policy = definition_pb2.QueryOffsetPolicy
    assert await query(policy.BEGINNING) == (Code.OK, 0)
    assert await query(policy.END) == (Code.OK, 5)
    assert await query(policy.TIMESTAMP, 0) == (Code.OK, 0)
    assert await query(policy.TIMESTAMP, 9_999_999_999_999) == (Code.OK, 5)
    assert (await query(policy.TIMESTAMP))[0] == Code.BAD_REQUEST
    assert (await query(9))[0] == Code.BAD_REQUEST
