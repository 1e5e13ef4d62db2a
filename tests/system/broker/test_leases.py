"""What happens to a message after it was handed out: ack, nack, time-out, redelivery, dead letters."""

from __future__ import annotations

import asyncio
import time

import pytest
from broker.in_process import Code, MessageType, TopicType, eventually, pb, resource, running

from razzo.protocol import limits, methods

T, G = "orders", "billing"
DLQ = f"%DLQ%{G}"


@pytest.fixture
async def topic(admin, client):
    await admin.topic(T)
    await client.subscribe(T, G)
    return T


@pytest.fixture
async def message(client, topic):
    await client.send_ok(topic, b"m", message_id="the-message")
    (received,) = await client.take(topic, G)
    return received


def handle_of(message):
    return message.system_properties.receipt_handle


def attempt_of(message):
    return message.system_properties.delivery_attempt


async def test_an_acknowledged_message_is_gone(client, topic, message):
    answer = await client.ack(topic, G, message)
    assert answer.status.code == Code.OK
    (entry,) = answer.entries
    assert (entry.message_id, entry.receipt_handle) == ("the-message", handle_of(message))
    assert entry.status.code == Code.OK
    assert await client.take(topic, G) == []


async def test_ack_twice_is_ok(client, topic, message):
    await client.ack_ok(topic, G, message)
    await client.ack_ok(topic, G, message)


async def test_a_nacked_message_comes_again_at_once(client, topic, message):
    await client.nack(topic, G, message)
    (again,) = await client.take(topic, G)
    assert attempt_of(again) == 2
    assert again.system_properties.message_id == "the-message"
    assert again.system_properties.queue_offset == message.system_properties.queue_offset


async def test_a_nacked_message_wakes_a_waiting_receive(client, topic, message):
    waiting = asyncio.create_task(client.receive(topic, G, poll_s=10))
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]
    begun = time.monotonic()
    await client.nack(topic, G, message, 0.3)
    _, (again,), _ = await waiting
    assert 0.25 < time.monotonic() - begun < 1.5
    assert attempt_of(again) == 2


async def test_handles_after_redelivery(client, topic, message):
    await client.nack(topic, G, message)
    (again,) = await client.take(topic, G)
    assert handle_of(again) != handle_of(message)
    old = await client.ack(topic, G, message)
    assert old.status.code == old.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    assert (await client.change_invisible(topic, G, handle_of(message), 1)).status.code == Code.INVALID_RECEIPT_HANDLE
    both = await client.ack(topic, G, message, again)
    assert both.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in both.entries] == [Code.INVALID_RECEIPT_HANDLE, Code.OK]


async def test_change_invisible_prolongs_and_gives_a_handle_that_works(client, topic, message):
    answer = await client.change_invisible(topic, G, handle_of(message), 100)
    assert answer.status.code == Code.OK
    message.system_properties.receipt_handle = answer.receipt_handle
    await client.ack_ok(topic, G, message)


@pytest.mark.parametrize("duration_s", [-1, 12 * 3600 + 1])
async def test_change_invisible_out_of_range_echoes_the_handle(client, topic, message, duration_s):
    answer = await client.change_invisible(topic, G, handle_of(message), duration_s)
    assert answer.status.code == Code.ILLEGAL_INVISIBLE_TIME
    assert answer.receipt_handle == handle_of(message)


async def test_change_invisible_after_ack(client, topic, message):
    await client.ack_ok(topic, G, message)
    answer = await client.change_invisible(topic, G, handle_of(message), 1)
    assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
    assert answer.receipt_handle == handle_of(message)


async def test_ack_refusals(client, topic, message):
    request = pb.AckMessageRequest(group=resource(G), topic=resource(topic))
    assert (await client.call(methods.ACK_MESSAGE, request)).status.code == Code.BAD_REQUEST
    request.entries.add(message_id="a", receipt_handle="nonsense")
    request.entries.add(message_id="b", receipt_handle="")
    answer = await client.call(methods.ACK_MESSAGE, request)
    assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
    assert [(entry.message_id, entry.status.code) for entry in answer.entries] == [
        ("a", Code.INVALID_RECEIPT_HANDLE),
        ("b", Code.INVALID_RECEIPT_HANDLE),
    ]
    other_group = await client.ack(topic, "other", message)
    assert other_group.status.code == Code.INVALID_RECEIPT_HANDLE
    bad_group = await client.ack(topic, "a b", message)
    assert bad_group.status.code == bad_group.entries[0].status.code == Code.ILLEGAL_CONSUMER_GROUP
    assert (await client.ack("a b", G, message)).status.code == Code.ILLEGAL_TOPIC
    many = pb.AckMessageRequest(group=resource(G), topic=resource(topic))
    for n in range(limits.ACK_ENTRIES_MAX + 1):
        many.entries.add(message_id=str(n), receipt_handle=handle_of(message))
    assert (await client.call(methods.ACK_MESSAGE, many)).status.code == Code.BAD_REQUEST
    anonymous = await client.call(methods.ACK_MESSAGE, request, metadata=())
    assert anonymous.status.code == Code.CLIENT_ID_REQUIRED
    await client.ack_ok(topic, G, message)


async def test_many_acks_in_one_request(client, topic):
    await client.send(*(client.message(topic, b"%d" % n) for n in range(32)))
    messages = await client.take(topic, G)
    assert len(messages) == 32
    await client.ack_ok(topic, G, *messages)
    assert await client.take(topic, G) == []


async def test_a_forged_handle_is_refused(client, topic, message):
    handle = handle_of(message)
    for at in range(0, len(handle) - 1, 3):
        forged = handle[:at] + ("A" if handle[at] != "A" else "B") + handle[at + 1 :]
        message.system_properties.receipt_handle = forged
        assert (await client.ack(topic, G, message)).status.code == Code.INVALID_RECEIPT_HANDLE


async def test_messages_of_a_closed_connection_are_not_hidden(broker, client, topic):
    """A client that dies while it has messages with auto renewal gives them up when it says goodbye."""
    await client.send_ok(topic, b"m")
    dying = broker.client()
    (message,) = await dying.take(topic, G, invisible_s=None, auto_renew=True)
    assert message.system_properties.invisible_duration.ToMilliseconds() == limits.AUTO_RENEW_INITIAL_MS
    assert await client.take(topic, G) == []
    farewell = await dying.call(methods.NOTIFY_CLIENT_TERMINATION, pb.NotifyClientTerminationRequest())
    assert farewell.status.code == Code.OK
    (again,) = await client.take(topic, G, poll_s=3)
    assert attempt_of(again) == 2


async def test_messages_of_a_silent_client_come_again(tmp_path):
    async with running(tmp_path / "data", client_expiry_ms=300) as broker:
        client, silent = broker.client(), broker.client()
        await broker.admin().topic(T)
        await client.subscribe(T, G)
        await client.send_ok(T, b"m")
        assert len(await silent.take(T, G, invisible_s=None, auto_renew=True)) == 1

        async def redelivered():
            return await client.take(T, G)

        (again,) = await eventually(redelivered)
        assert attempt_of(again) == 2


async def test_a_push_consumers_nack_waits_at_least_the_groups_delay(admin, client, topic):
    await admin.group("patient", retry_policy={"delays_ms": [400]})
    await client.subscribe(topic, "patient")
    await client.send_ok(topic, b"m")
    (message,) = await client.take(topic, "patient", invisible_s=None, auto_renew=True)
    begun = time.monotonic()
    await client.nack(topic, "patient", message, 0.001)
    (again,) = await client.take(topic, "patient", poll_s=3)
    assert time.monotonic() - begun > 0.35
    assert attempt_of(again) == 2


# --- dead letters


async def test_after_the_last_attempt_comes_the_dead_letter_topic(admin, client, topic):
    await admin.group(G, update=True, retry_max_times=2)
    await client.send_ok(topic, b"poison", message_id="poison", tag="t", properties={"colour": "red"})
    await client.send_ok(topic, b"good")
    for attempt in (1, 2, 3):
        messages = await client.take(topic, G)
        poison = next(each for each in messages if each.body == b"poison")
        assert attempt_of(poison) == attempt
        await client.nack(topic, G, poison)
        await client.ack(topic, G, *(each for each in messages if each.body == b"good"))
    assert await client.take(topic, G) == []
    assert [(each.next_offset, each.outstanding) for each in await admin.positions(G, topic)] == [(2, 0)]

    found = await admin.call(methods.FIND_MESSAGES, _find(DLQ, "poison"))
    (letter,) = found.messages
    assert letter.properties["RAZZO_DEAD_LETTER_REASON"] == "max-attempts"
    assert letter.properties["RAZZO_DEAD_LETTER_ATTEMPTS"] == "3"
    assert letter.properties["RAZZO_DEAD_LETTER_GROUP"] == G
    assert letter.reconsume_times == 2


async def test_dead_letters_can_be_consumed(admin, client, topic):
    await admin.group(G, update=True, retry_max_times=0)
    await client.send_ok(topic, b"first", message_id="first")
    (message,) = await client.take(topic, G)
    await client.nack(topic, G, message)
    assert await client.take(topic, G) == []
    await client.subscribe(DLQ, "undertaker")

    await client.send_ok(topic, b"poison", message_id="poison", tag="t", keys=["k"], properties={"colour": "red"})
    (message,) = await client.take(topic, G)
    await client.nack(topic, G, message)
    assert await client.take(topic, G) == []
    (letter,) = await client.take(DLQ, "undertaker")
    kept = letter.system_properties
    assert letter.body == b"poison"
    assert (kept.tag, list(kept.keys), kept.message_id) == ("t", ["k"], "poison")
    assert (kept.dead_letter_queue.topic, kept.dead_letter_queue.message_id) == (topic, "poison")
    assert letter.user_properties["colour"] == "red"
    assert kept.born_host == message.system_properties.born_host
    await client.ack_ok(DLQ, "undertaker", letter)


def _find(topic, message_id):
    from razzo.v1 import admin_pb2

    return admin_pb2.FindMessagesRequest(topic=topic, message_id=message_id)


async def _forward(client, topic, message_id, handle="", group=G):
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        group=resource(group),
        topic=resource(topic),
        receipt_handle=handle,
        message_id=message_id,
        delivery_attempt=17,
        max_delivery_attempts=17,
    )
    return (await client.call(methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, request)).status.code


@pytest.mark.parametrize("by_handle", [True, False], ids=["by handle", "by message id"])
async def test_a_client_forwards_a_message(admin, client, topic, message, by_handle):
    handle = handle_of(message) if by_handle else ""
    assert await _forward(client, topic, "the-message", handle) == Code.OK
    assert await _forward(client, topic, "the-message", handle) == Code.OK, "idempotent"
    found = await admin.call(methods.FIND_MESSAGES, _find(DLQ, "the-message"))
    (letter,) = found.messages
    assert letter.properties["RAZZO_DEAD_LETTER_REASON"] == "forwarded-by-client"
    assert letter.properties["RAZZO_DEAD_LETTER_ATTEMPTS"] == "17"
    assert await client.take(topic, G) == []


async def test_forward_refusals(client, topic, message):
    assert await _forward(client, topic, "unknown") == Code.MESSAGE_NOT_FOUND
    assert await _forward(client, topic, "") == Code.MESSAGE_NOT_FOUND
    assert await _forward(client, topic, "the-message", "nonsense") == Code.INVALID_RECEIPT_HANDLE
    assert await _forward(client, topic, "the-message", group="nobody") == Code.CONSUMER_GROUP_NOT_FOUND
    await client.nack(topic, G, message)
    await client.take(topic, G)
    assert await _forward(client, topic, "the-message", handle_of(message)) == Code.INVALID_RECEIPT_HANDLE


# --- ordered groups


@pytest.fixture
async def fifo(admin, client):
    await admin.topic("fifo", kind=TopicType.FIFO)
    await admin.group("ordered", fifo=True)
    await client.subscribe("fifo", "ordered")
    for n in range(4):
        await client.send_ok("fifo", b"%d" % n, message_group="g", message_type=MessageType.FIFO)
    return "fifo"


async def test_an_ordered_group_waits_for_what_is_out(client, fifo):
    first = await client.take(fifo, "ordered", batch=2)
    assert [each.body for each in first] == [b"0", b"1"]
    waiting = asyncio.create_task(client.receive(fifo, "ordered", poll_s=10))
    await client.ack_ok(fifo, "ordered", first[0])
    assert not (await asyncio.wait([waiting], timeout=0.3))[0]
    await client.ack_ok(fifo, "ordered", first[1])
    _, rest, _ = await waiting
    assert [each.body for each in rest] == [b"2", b"3"]


async def test_an_ordered_group_gets_the_failed_message_first(client, fifo):
    first, second = await client.take(fifo, "ordered", batch=2)
    await client.nack(fifo, "ordered", first)
    assert await client.take(fifo, "ordered") == []
    await client.nack(fifo, "ordered", second)
    again = await client.take(fifo, "ordered")
    assert [(each.body, attempt_of(each)) for each in again] == [(b"0", 2), (b"1", 2), (b"2", 1), (b"3", 1)]


async def test_a_repeated_attempt_gets_the_same_messages(client, fifo):
    first = await client.take(fifo, "ordered", batch=2, attempt_id="a1")
    assert await client.take(fifo, "ordered", batch=2, attempt_id="a2") == []
    again = await client.take(fifo, "ordered", batch=2, attempt_id="a1")
    assert [(each.body, attempt_of(each)) for each in again] == [(b"0", 1), (b"1", 1)]
    await client.ack_ok(fifo, "ordered", *first)


async def test_a_dead_letter_lets_the_next_ordered_message_through(client, fifo):
    (first,) = await client.take(fifo, "ordered", batch=1)
    assert await _forward(client, fifo, "", handle_of(first), "ordered") == Code.OK
    (second,) = await client.take(fifo, "ordered", batch=1)
    assert second.body == b"1"


# --- bounds


async def test_no_more_than_so_many_messages_of_a_queue_are_out(tmp_path):
    async with running(tmp_path / "data", leases_per_queue_max=3) as broker:
        client = broker.client()
        await broker.admin().topic(T)
        await client.subscribe(T, G)
        await client.send(*(client.message(T, b"%d" % n) for n in range(5)))
        first = await client.take(T, G)
        assert len(first) == 3
        assert await client.take(T, G) == []
        waiting = asyncio.create_task(client.receive(T, G, poll_s=10))
        await client.ack_ok(T, G, first[0])
        _, (message,), _ = await waiting
        assert message.body == b"3"


async def test_no_more_than_so_many_receives_wait(tmp_path):
    async with running(tmp_path / "data", waiting_receives_per_queue_max=1) as broker:
        client = broker.client()
        await broker.admin().topic(T)
        await client.subscribe(T, G)
        waiting = asyncio.create_task(client.receive(T, G, poll_s=10))
        assert not (await asyncio.wait([waiting], timeout=0.3))[0]
        status, _, _ = await client.receive(T, G, poll_s=5)
        assert status.code == Code.TOO_MANY_REQUESTS
        await client.send_ok(T)
        assert (await waiting)[0].code == Code.OK
