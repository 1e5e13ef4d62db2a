"""Messages in and out: SendMessage, ReceiveMessage, AckMessage over the wire."""

from __future__ import annotations

import asyncio
import hashlib
import time

import grpc
import pytest
from broker.in_process import Code, MessageType, TopicType, pb, resource, running

from apache.rocketmq.v2 import definition_pb2
from razzo.broker.settings import FlushChoice
from razzo.protocol import limits, methods

T, G = "orders", "billing"


@pytest.fixture
async def topic(admin, client):
    await admin.topic(T)
    await client.subscribe(T, G)
    return T


async def test_a_message_comes_back_as_it_was_sent(client, topic):
    entry = await client.send_ok(
        topic,
        b"body \x00\xff",
        message_id="0102FC000000014FD10B11B56100000007",
        tag="created",
        keys=["k1", "k2"],
        trace_context="00-aa-bb-01",
        born_host="laptop",
        properties={"colour": "blue", "größe": "5"},
    )
    assert entry.message_id == "0102FC000000014FD10B11B56100000007"
    assert entry.offset == 0
    before_ms = int(time.time() * 1000)
    status, (message,), delivered_ms = await client.receive(topic, G, invisible_s=12)
    assert status.code == Code.OK
    assert delivered_ms >= before_ms - 1000
    kept = message.system_properties
    assert message.body == b"body \x00\xff"
    assert message.topic == resource(topic)
    assert dict(message.user_properties) == {"colour": "blue", "größe": "5"}
    assert (kept.tag, list(kept.keys), kept.trace_context) == ("created", ["k1", "k2"], "00-aa-bb-01")
    assert kept.message_id == "0102FC000000014FD10B11B56100000007"
    assert kept.born_host == "laptop"
    assert kept.body_digest.type == definition_pb2.DigestType.MD5
    assert kept.body_digest.checksum == hashlib.md5(b"body \x00\xff").hexdigest().upper()
    assert kept.body_encoding == definition_pb2.Encoding.IDENTITY
    assert kept.message_type == MessageType.NORMAL
    assert (kept.queue_id, kept.queue_offset, kept.delivery_attempt) == (0, 0, 1)
    assert kept.invisible_duration.ToMilliseconds() == 12_000
    assert kept.store_timestamp.ToMilliseconds() >= kept.born_timestamp.ToMilliseconds() - 1000
    assert kept.store_host
    assert kept.receipt_handle
    await client.ack_ok(topic, G, message)


async def test_a_gzip_body_is_passed_through(client, topic):
    body = b"\x78\x9czlib in truth"
    await client.send_ok(topic, body, body_encoding=definition_pb2.Encoding.GZIP)
    (message,) = await client.take(topic, G)
    assert (message.body, message.system_properties.body_encoding) == (body, definition_pb2.Encoding.GZIP)


async def test_a_batch_is_stored_in_order(client, topic):
    answer = await client.send(*(client.message(topic, body) for body in (b"a", b"b", b"c")))
    assert answer.status.code == Code.OK
    assert [(entry.status.code, entry.offset) for entry in answer.entries] == [(Code.OK, n) for n in range(3)]
    assert [message.body for message in await client.take(topic, G)] == [b"a", b"b", b"c"]


async def test_a_batch_with_one_fault_stores_nothing(client, topic):
    answer = await client.send(client.message(topic, b"good"), client.message(topic, b""))
    assert answer.status.code == Code.MESSAGE_BODY_EMPTY
    assert len(answer.entries) == 0
    assert await client.take(topic, G) == []


async def test_many_sends_at_once_keep_their_answers_apart(client, topic):
    entries = await asyncio.gather(*(client.send_ok(topic, b"%d" % n, message_id=f"id-{n}") for n in range(100)))
    assert [entry.message_id for entry in entries] == [f"id-{n}" for n in range(100)]
    assert sorted(entry.offset for entry in entries) == list(range(100))
    received = []
    while batch := await client.take(topic, G):
        assert len(batch) <= limits.RECEIVE_MESSAGES_MAX
        received += batch
        await client.ack_ok(topic, G, *batch)
    by_offset = {entry.offset: entry.message_id for entry in entries}
    assert [message.system_properties.message_id for message in received] == [by_offset[n] for n in range(100)]


async def test_one_fault_among_many_sends_is_its_own(client, topic):
    good, bad = client.message(topic, b"good"), client.message(topic, b"bad", tag="a|b")
    answers = await asyncio.gather(client.send(good), client.send(bad), client.send(good))
    assert [answer.status.code for answer in answers] == [Code.OK, Code.ILLEGAL_MESSAGE_TAG, Code.OK]


async def test_a_topic_that_keeps_batches_is_refused_alone(admin, client, topic):
    await admin.topic("batches", attributes={"queue.type": "BatchCQ"})
    there, elsewhere = client.message(topic, b"good"), client.message("batches", b"odd")
    answers = await asyncio.gather(client.send(there), client.send(elsewhere), client.send(there))
    assert [answer.status.code for answer in answers] == [Code.OK, Code.NOT_IMPLEMENTED, Code.OK]
    status, messages, _ = await client.receive("batches", G)
    assert (status.code, messages) == (Code.NOT_IMPLEMENTED, [])


@pytest.mark.parametrize("queue_id", [0, 3, 999, -1])
async def test_the_queue_that_a_client_names_does_not_count(admin, client, queue_id):
    await admin.topic("wide", queues=4)
    await client.subscribe("wide", G)
    for _ in range(8):
        await client.send_ok("wide", queue_id=queue_id)
    messages = await client.take("wide", G, queue_id=0)
    assert sorted(message.system_properties.queue_id for message in messages) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_messages_of_one_group_share_a_queue(admin, client):
    await admin.topic("fifo", queues=8, kind=TopicType.FIFO)
    await client.subscribe("fifo", G)
    for n in range(30):
        await client.send_ok(
            "fifo", b"%d" % n, message_group=f"g{n % 3}", message_type=MessageType.FIFO, queue_id=n % 8
        )
    queues = {}
    for message in await client.take("fifo", G):
        assert message.system_properties.message_type == MessageType.FIFO
        queues.setdefault(message.system_properties.message_group, set()).add(message.system_properties.queue_id)
    assert len(queues) == 3
    assert all(len(used) == 1 for used in queues.values())


async def test_a_delivery_time_that_has_passed_means_now(admin, client):
    await admin.topic("later", kind=TopicType.DELAY)
    await client.subscribe("later", G)
    message = client.message("later", message_type=MessageType.DELAY)
    message.system_properties.delivery_timestamp.FromMilliseconds(1_000)
    assert (await client.send(message)).status.code == Code.OK
    (received,) = await client.take("later", G)
    assert received.system_properties.message_type == MessageType.DELAY
    assert received.system_properties.delivery_timestamp.ToMilliseconds() == 1_000


def _message(client, **changes):
    """A message of topic T with something wrong about it."""
    message = client.message(T, changes.pop("body", b"x"))
    for name, value in changes.items():
        if name == "user":
            message.user_properties.update(value)
        elif name == "keys":
            message.system_properties.keys.extend(value)
        elif name == "delivery_ms":
            message.system_properties.delivery_timestamp.FromMilliseconds(value)
        elif name == "topic":
            message.topic.CopyFrom(resource(value))
        else:
            setattr(message.system_properties, name, value)
    return message


REFUSALS = [
    ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
    ({"body": bytes(limits.MESSAGE_BODY_BYTES_MAX + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
    ({"topic": "nobody-made-it"}, Code.TOPIC_NOT_FOUND),
    ({"topic": ""}, Code.ILLEGAL_TOPIC),
    ({"topic": "a b"}, Code.ILLEGAL_TOPIC),
    ({"topic": "x" * 128}, Code.ILLEGAL_TOPIC),
    ({"topic": "rmq_sys_razzo_state"}, Code.ILLEGAL_TOPIC),
    ({"topic": "TBW102"}, Code.ILLEGAL_TOPIC),
    ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
    ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
    ({"keys": [" "]}, Code.ILLEGAL_MESSAGE_KEY),
    ({"keys": ["a\x01"]}, Code.ILLEGAL_MESSAGE_KEY),
    ({"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
    ({"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
    ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
    ({"user": {"KEYS": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"user": {"a": "b\x02"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"user": {" ": "b"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"user": {str(n): "v" for n in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"user": {"a": "v" * limits.MESSAGE_PROPERTIES_BYTES_MAX}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"message_type": MessageType.FIFO}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"message_type": MessageType.FIFO, "message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"message_type": MessageType.TRANSACTION}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"delivery_ms": 1}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"message_type": 99}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
]


@pytest.mark.parametrize(("changes", "code"), REFUSALS, ids=[f"{next(iter(each))}-{code}" for each, code in REFUSALS])
async def test_send_refusals(client, topic, changes, code):
    answer = await client.send(_message(client, **dict(changes)))
    assert answer.status.code == code, answer.status
    assert len(answer.entries) == 0
    assert await client.take(topic, G) == []


async def test_largest_body(client, topic):
    body = bytes(limits.MESSAGE_BODY_BYTES_MAX)
    await client.send_ok(topic, body)
    (message,) = await client.take(topic, G)
    assert message.body == body


@pytest.mark.parametrize(
    ("kind", "message_type", "system"),
    [
        (TopicType.TRANSACTION, MessageType.TRANSACTION, {}),
        (TopicType.LITE, MessageType.LITE, {"lite_topic": "a"}),
        (TopicType.PRIORITY, MessageType.PRIORITY, {"priority": 3}),
    ],
)
async def test_types_that_are_not_served_yet(admin, client, kind, message_type, system):
    await admin.topic("special", kind=kind)
    answer = await client.send(client.message("special", message_type=message_type, **system))
    assert answer.status.code == Code.NOT_IMPLEMENTED


@pytest.mark.parametrize(
    ("ahead_ms", "code"), [(60_000, Code.NOT_IMPLEMENTED), (90_000_000, Code.ILLEGAL_DELIVERY_TIME)]
)
async def test_delayed_messages_are_not_served_yet(admin, client, ahead_ms, code):
    await admin.topic("later", kind=TopicType.DELAY)
    message = client.message("later", message_type=MessageType.DELAY)
    message.system_properties.delivery_timestamp.FromMilliseconds(int(time.time() * 1000) + ahead_ms)
    assert (await client.send(message)).status.code == code


async def test_request_level_refusals(admin, client, topic):
    await admin.topic("other")
    await admin.topic("closed", permission=4)
    assert (await client.send()).status.code == Code.MESSAGE_CORRUPTED
    two_topics = await client.send(client.message(topic), client.message("other"))
    assert two_topics.status.code == Code.MESSAGE_CORRUPTED
    too_many = [client.message(topic) for _ in range(limits.SEND_BATCH_MESSAGES_MAX + 1)]
    assert (await client.send(*too_many)).status.code == Code.MESSAGE_CORRUPTED
    assert (await client.send(client.message("closed"))).status.code == Code.FORBIDDEN
    anonymous = await client.send(client.message(topic), metadata=())
    assert anonymous.status.code == Code.CLIENT_ID_REQUIRED
    raw = await client.channel.unary_unary(methods.SEND_MESSAGE)(b"\xff\xff", metadata=client.metadata())
    assert pb.SendMessageResponse.FromString(raw).status.code == Code.BAD_REQUEST


async def test_namespace_by_field_and_by_header_is_one_topic(admin, client):
    await admin.topic("tenant%orders")
    await admin.group("tenant%billing")
    request = pb.QueryAssignmentRequest(topic=resource("orders", "tenant"), group=resource("billing", "tenant"))
    assert (await client.call(methods.QUERY_ASSIGNMENT, request)).status.code == Code.OK
    by_field = client.message("orders", b"field")
    by_field.topic.resource_namespace = "tenant"
    assert (await client.send(by_field)).status.code == Code.OK
    header = client.metadata([("x-mq-namespace", "tenant")])
    assert (await client.send(client.message("orders", b"header"), metadata=header)).status.code == Code.OK
    receive = pb.ReceiveMessageRequest(group=resource("billing", "tenant"), batch_size=32, auto_renew=True)
    receive.message_queue.topic.CopyFrom(resource("orders", "tenant"))
    _, messages, _ = await client.receive_request(receive, timeout=0.6)
    assert [message.body for message in messages] == [b"field", b"header"]
    assert messages[0].topic == resource("orders", "tenant")
    assert (await client.send(client.message("orders"))).status.code == Code.TOPIC_NOT_FOUND


# --- receiving


async def test_a_new_group_starts_at_the_end(client, topic):
    await client.send_ok(topic, b"before")
    assert await client.take(topic, "newcomer") == []
    await client.send_ok(topic, b"after")
    assert [message.body for message in await client.take(topic, "newcomer")] == [b"after"]


async def test_groups_do_not_disturb_one_another(client, topic):
    await client.subscribe(topic, "second")
    await client.send_ok(topic, b"m")
    assert len(await client.take(topic, G)) == 1
    assert len(await client.take(topic, "second")) == 1
    assert await client.take(topic, G) == []


async def test_batch_size_is_kept(client, topic):
    for n in range(5):
        await client.send_ok(topic, b"%d" % n)
    assert [message.body for message in await client.take(topic, G, batch=2)] == [b"0", b"1"]
    assert [message.body for message in await client.take(topic, G, batch=1000)] == [b"2", b"3", b"4"]


async def test_a_waiting_receive_gets_the_next_message_at_once(client, topic):
    waiting = asyncio.create_task(client.receive(topic, G, poll_s=10))
    assert not (await asyncio.wait([waiting], timeout=0.3))[0]
    begun = time.monotonic()
    await client.send_ok(topic, b"now")
    status, messages, _ = await waiting
    assert status.code == Code.OK
    assert [message.body for message in messages] == [b"now"]
    assert time.monotonic() - begun < 1.0


@pytest.mark.parametrize("flush_mode", list(FlushChoice))
async def test_no_message_falls_between_a_send_and_a_wait(tmp_path, flush_mode):
    """A receive that comes while the message is on its way to the disk is woken when it is there."""
    async with running(tmp_path / "data", flush_mode=flush_mode) as broker:
        sender, client = broker.client(), broker.client()
        await broker.admin().topic(T)
        await client.subscribe(T, G)
        for n in range(60):
            begun = time.monotonic()
            sent = asyncio.create_task(sender.send_ok(T, b"%d" % n))
            for _ in range(n % 6):
                await asyncio.sleep(0)
            status, messages, _ = await client.receive(T, G, poll_s=5)
            assert status.code == Code.OK
            assert [message.body for message in messages] == [b"%d" % n]
            assert time.monotonic() - begun < 2
            await sent
            await client.ack_ok(T, G, *messages)


async def test_every_waiting_receive_gets_its_message(client, topic):
    waiting = [asyncio.create_task(client.receive(topic, G, poll_s=10, batch=1)) for _ in range(8)]
    assert not (await asyncio.wait(waiting, timeout=0.3))[0]
    await client.send(*(client.message(topic, b"%d" % n) for n in range(8)))
    results = await asyncio.gather(*waiting)
    assert sorted(messages[0].body for _, messages, _ in results) == [b"%d" % n for n in range(8)]


async def test_an_empty_poll_ends_before_the_deadline(client, topic):
    begun = time.monotonic()
    status, messages, delivered_ms = await client.receive(topic, G, poll_s=0.4)
    assert (status.code, messages) == (Code.MESSAGE_NOT_FOUND, [])
    assert delivered_ms is not None
    assert 0.3 < time.monotonic() - begun < 1.0


async def test_a_cancelled_poll_hides_nothing(client, topic):
    for _ in range(5):
        waiting = asyncio.create_task(client.receive(topic, G, poll_s=10))
        await asyncio.wait([waiting], timeout=0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await client.send_ok(topic, b"still here")
    assert [message.body for message in await client.take(topic, G, poll_s=3)] == [b"still here"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("*", "abx"), ("", "abx"), ("a || b", "ab"), ("a", "a"), ("nothing", ""), ("a||x", "a")],
)
async def test_tag_filters(client, topic, expression, expected):
    await client.send_ok(topic, b"a", tag="a")
    await client.send_ok(topic, b"b", tag="b")
    await client.send_ok(topic, b"x")
    messages = await client.take(topic, G, expression=expression)
    assert b"".join(message.body for message in messages).decode() == expected
    # what the filter dropped is consumed
    await client.ack(topic, G, *messages)
    assert await client.take(topic, G) == []


async def test_tags_with_one_hash_are_told_apart(client, topic):
    await client.send_ok(topic, b"1", tag="Aa")
    await client.send_ok(topic, b"2", tag="BB")
    assert [message.body for message in await client.take(topic, G, expression="BB")] == [b"2"]


async def test_receive_refusals(admin, client, topic):
    await admin.topic("closed", permission=2)
    await admin.group("switched-off", consume_enabled=False)

    async def code(topic_name=topic, group=G, **options):
        status, messages, delivered_ms = await client.receive(topic_name, group, **options)
        assert messages == []
        assert delivered_ms is not None
        return status.code

    assert await code("nobody-made-it") == Code.TOPIC_NOT_FOUND
    assert await code("rmq_sys_razzo_state") == Code.ILLEGAL_TOPIC
    assert await code(group="a b") == Code.ILLEGAL_CONSUMER_GROUP
    assert await code("closed") == Code.FORBIDDEN
    assert await code(group="switched-off") == Code.FORBIDDEN
    assert await code(invisible_s=9) == Code.ILLEGAL_INVISIBLE_TIME
    assert await code(invisible_s=12 * 3600 + 1) == Code.ILLEGAL_INVISIBLE_TIME
    assert await code(batch=0) == Code.BAD_REQUEST
    assert await code(expression="||") == Code.ILLEGAL_FILTER_EXPRESSION
    assert await code(expression="a > 1", filter_type=definition_pb2.FilterType.SQL) == Code.NOT_IMPLEMENTED
    client.client_id = " "
    assert await code() == Code.CLIENT_ID_REQUIRED
    stream = client.channel.unary_stream(methods.RECEIVE_MESSAGE)(b"\xff", metadata=client.metadata())
    answers = [pb.ReceiveMessageResponse.FromString(raw) async for raw in stream]
    assert answers[0].status.code == Code.BAD_REQUEST


async def test_unknown_methods_are_unimplemented(client):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.channel.unary_unary(methods.DESCRIBE_TOPIC_STATUS)(b"", metadata=client.metadata())
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
