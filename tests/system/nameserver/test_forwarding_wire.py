"""Calls that a real nameserver sends on to brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from nameserver.nameserver_process import Client, NameserverProcess, resource, until
from nameserver.scripted_broker import OK, ScriptedBroker, code_of, handle, status, topic

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol import methods
from razzo.protocol.codes import Code


def message(name: str, body: bytes = b"x", group: str = "") -> definition_pb2.Message:
    properties = definition_pb2.SystemProperties(message_id="m1")
    if group:
        properties.message_group = group
    return definition_pb2.Message(topic=resource(name), body=body, system_properties=properties)


def receive(broker: str, name: str = "orders") -> service_pb2.ReceiveMessageRequest:
    queue = definition_pb2.MessageQueue(topic=resource(name), id=-1, broker=definition_pb2.Broker(name=broker))
    return service_pb2.ReceiveMessageRequest(group=resource("g"), message_queue=queue, batch_size=32)


# --- send


async def test_a_send_reaches_a_broker_as_it_is(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:
        answer = service_pb2.SendMessageResponse(status=OK, entries=[service_pb2.SendResultEntry(status=OK, offset=7)])
        broker.script[methods.SEND_MESSAGE] = answer
        await broker.start(nameserver.peer_address)
        request = service_pb2.SendMessageRequest(messages=[message("orders", bytes(4 << 20))])
        client.metadata = (*client.metadata, ("x-mq-request-id", "r1"), ("x-razzo-peer", "ipv4:6.6.6.6:6"))
        assert await client.call("SendMessage", request) == answer
        (call,) = broker.of(methods.SEND_MESSAGE)
        assert call.request == request.SerializeToString()
        assert call.metadata["x-mq-request-id"] == "r1"
        assert call.metadata["x-razzo-forwarded"] == "1"
        assert call.metadata["x-razzo-peer"].startswith("ipv4:127.0.0.1:"), "a client cannot say who it is"
        assert call.time_remaining is not None
        assert 0 < call.time_remaining < 5.5


async def test_sends_take_turns_and_message_groups_stay(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("b", topic("orders")) as b:
        for broker in (a, b):
            broker.script[methods.SEND_MESSAGE] = service_pb2.SendMessageResponse(status=OK)
            await broker.start(nameserver.peer_address)
        for _ in range(6):
            await client.call("SendMessage", service_pb2.SendMessageRequest(messages=[message("orders")]))
        assert [len(broker.of(methods.SEND_MESSAGE)) for broker in (a, b)] == [3, 3]
        for broker in (a, b):
            broker.received.clear()
        for number in range(20):
            for _ in range(2):
                sent = message("orders", group=f"user-{number}")
                await client.call("SendMessage", service_pb2.SendMessageRequest(messages=[sent]))

        def groups(broker: ScriptedBroker) -> list[str]:
            calls = [service_pb2.SendMessageRequest.FromString(c.request) for c in broker.of(methods.SEND_MESSAGE)]
            return [c.messages[0].system_properties.message_group for c in calls]

        assert set(groups(a)).isdisjoint(groups(b)), "a group lives on one broker"
        assert groups(a)
        assert groups(b)


async def test_sends_that_no_broker_can_take(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("read-only", permission=4), topic("orders")) as broker:
        await broker.start(nameserver.peer_address)

        async def code(*messages: definition_pb2.Message) -> Code:
            return code_of(await client.call("SendMessage", service_pb2.SendMessageRequest(messages=messages)))

        assert await code() is Code.MESSAGE_CORRUPTED
        assert await code(message("nowhere")) is Code.TOPIC_NOT_FOUND
        assert await code(message("read-only")) is Code.FORBIDDEN
        assert await code(message("orders")) is Code.NOT_IMPLEMENTED, "the script has no answer for it"
        await broker.lose_peer_port()
        assert await code(message("orders")) is Code.INTERNAL_SERVER_ERROR


async def test_a_broker_that_is_too_slow_is_a_timeout(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:
        released = asyncio.Event()

        async def slow(request: bytes, context: Any) -> service_pb2.SendMessageResponse:
            await released.wait()
            return service_pb2.SendMessageResponse(status=OK)

        broker.script[methods.SEND_MESSAGE] = slow
        await broker.start(nameserver.peer_address)
        request = service_pb2.SendMessageRequest(messages=[message("orders")])
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await client.call("SendMessage", request, timeout_s=0.3)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: broker.of(methods.SEND_MESSAGE), "the call did not reach the broker")
        released.set()


# --- receive


async def test_a_receive_streams_while_the_broker_writes(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:
        arrived = asyncio.Event()

        async def answers(request: bytes, context: Any) -> AsyncIterator[service_pb2.ReceiveMessageResponse]:
            yield service_pb2.ReceiveMessageResponse(status=OK)
            await arrived.wait()
            yield service_pb2.ReceiveMessageResponse(message=message("orders", bytes(4 << 20)))

        broker.script[methods.RECEIVE_MESSAGE] = answers
        await broker.start(nameserver.peer_address)
        stream = client.messaging.ReceiveMessage(receive("a"), metadata=client.metadata, timeout=20)
        first = await stream.read()
        assert first.status.code == Code.OK, "must come before the broker writes the next one"
        arrived.set()
        second = await stream.read()
        assert len(second.message.body) == 4 << 20
        assert await stream.read() is grpc.aio.EOF
        (call,) = broker.of(methods.RECEIVE_MESSAGE)
        assert call.time_remaining is not None
        assert 15 < call.time_remaining < 20.5, "the client's deadline is the broker's (gRPC rounds it up a little)"


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_receive_that_nobody_waits_for_ends_at_the_broker(
    nameserver: NameserverProcess, client: Client, how: str
) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:

        async def never(request: bytes, context: Any) -> AsyncIterator[service_pb2.ReceiveMessageResponse]:
            yield service_pb2.ReceiveMessageResponse(status=OK)
            await asyncio.Event().wait()

        broker.script[methods.RECEIVE_MESSAGE] = never
        await broker.start(nameserver.peer_address)
        timeout_s = 0.5 if how == "deadline" else 30.0
        stream = client.messaging.ReceiveMessage(receive("a"), metadata=client.metadata, timeout=timeout_s)
        await stream.read()
        if how == "cancel":
            stream.cancel()
        await until(lambda: broker.cancelled, "the broker's call was not cancelled", timeout_s=5)


async def test_a_receive_fails_with_one_status_or_with_a_grpc_error(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:

        async def breaks(request: bytes, context: Any) -> AsyncIterator[service_pb2.ReceiveMessageResponse]:
            yield service_pb2.ReceiveMessageResponse(status=OK)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the disk is gone")

        broker.script[methods.RECEIVE_MESSAGE] = breaks
        await broker.start(nameserver.peer_address)
        for name, code in (
            ("unknown", Code.INTERNAL_SERVER_ERROR),
            ("", Code.BAD_REQUEST),
        ):
            stream = client.messaging.ReceiveMessage(receive(name), metadata=client.metadata, timeout=5)
            assert [element.status.code async for element in stream] == [code]
        stream = client.messaging.ReceiveMessage(receive("a"), metadata=client.metadata, timeout=5)
        assert (await stream.read()).status.code == Code.OK
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await stream.read()
        assert broken.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_receive_ends_when_its_broker_is_lost(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:

        async def never(request: bytes, context: Any) -> AsyncIterator[service_pb2.ReceiveMessageResponse]:
            yield service_pb2.ReceiveMessageResponse(status=OK)
            await asyncio.Event().wait()

        broker.script[methods.RECEIVE_MESSAGE] = never
        await broker.start(nameserver.peer_address)
        stream = client.messaging.ReceiveMessage(receive("a"), metadata=client.metadata, timeout=30)
        await stream.read()
        await broker.stop()
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await stream.read()
        assert broken.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


# --- by handle


async def test_an_ack_goes_to_the_broker_of_its_handle(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("b", topic("orders")) as b:
        for broker in (a, b):
            broker.script[methods.ACK_MESSAGE] = _acks(broker.name)
            await broker.start(nameserver.peer_address)
        ack = service_pb2.AckMessageRequest(group=resource("g"), topic=resource("orders"))
        ack.entries.add(message_id="1", receipt_handle=handle("b"))
        answer = await client.call("AckMessage", ack)
        assert code_of(answer) is Code.OK
        assert [call.request for call in b.of(methods.ACK_MESSAGE)] == [ack.SerializeToString()]
        assert not a.received


async def test_an_ack_of_several_brokers_is_taken_apart_and_put_together(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("b", topic("orders")) as b:
        for broker in (a, b):
            broker.script[methods.ACK_MESSAGE] = _acks(broker.name)
            await broker.start(nameserver.peer_address)
        ack = service_pb2.AckMessageRequest(group=resource("g"), topic=resource("orders"))
        handles = [handle("a"), handle("b"), "rubbish", handle("a", payload=b"late"), handle("gone")]
        for number, each in enumerate(handles):
            ack.entries.add(message_id=str(number), receipt_handle=each)
        answer = await client.call("AckMessage", ack)
        assert code_of(answer) is Code.MULTIPLE_RESULTS
        assert [entry.message_id for entry in answer.entries] == list("01234")
        assert [entry.receipt_handle for entry in answer.entries] == handles
        assert [Code(entry.status.code) for entry in answer.entries] == [
            Code.OK,
            Code.OK,
            Code.INVALID_RECEIPT_HANDLE,
            Code.INVALID_RECEIPT_HANDLE,
            Code.INTERNAL_SERVER_ERROR,
        ]
        del ack.entries[:]
        ack.entries.add(message_id="1", receipt_handle="rubbish")
        answer = await client.call("AckMessage", ack)
        assert code_of(answer) is Code.INVALID_RECEIPT_HANDLE, "one entry: the same code in both places"


def _acks(broker_name: str) -> Any:
    def answer(request: bytes, context: Any) -> service_pb2.AckMessageResponse:
        ack = service_pb2.AckMessageRequest.FromString(request)
        response = service_pb2.AckMessageResponse(status=OK)
        for entry in ack.entries:
            known = entry.receipt_handle == handle(broker_name)
            response.entries.add(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=OK if known else status(Code.INVALID_RECEIPT_HANDLE),
            )
        return response

    return answer


async def test_a_failed_change_gives_the_handle_back(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:
        answer = service_pb2.ChangeInvisibleDurationResponse(status=OK, receipt_handle="new")
        broker.script[methods.CHANGE_INVISIBLE_DURATION] = answer
        await broker.start(nameserver.peer_address)
        change = service_pb2.ChangeInvisibleDurationRequest(
            group=resource("g"), topic=resource("orders"), receipt_handle=handle("a")
        )
        assert await client.call("ChangeInvisibleDuration", change) == answer
        for bad, code in (
            ("rubbish", Code.INVALID_RECEIPT_HANDLE),
            (handle("gone"), Code.INTERNAL_SERVER_ERROR),
            (handle("a", kind="T"), Code.INVALID_RECEIPT_HANDLE),
        ):
            change.receipt_handle = bad
            refused = await client.call("ChangeInvisibleDuration", change)
            assert (code_of(refused), refused.receipt_handle) == (code, bad)


async def test_handles_and_queues_lead_to_their_broker(nameserver: NameserverProcess, client: Client) -> None:
    queue = definition_pb2.MessageQueue(topic=resource("orders"), broker=definition_pb2.Broker(name="b"))
    calls: list[tuple[str, str, Any, Any]] = [
        (
            "EndTransaction",
            methods.END_TRANSACTION,
            service_pb2.EndTransactionRequest(topic=resource("orders"), transaction_id=handle("b", "T")),
            service_pb2.EndTransactionResponse(status=OK),
        ),
        (
            "RecallMessage",
            methods.RECALL_MESSAGE,
            service_pb2.RecallMessageRequest(topic=resource("orders"), recall_handle=handle("b", "D")),
            service_pb2.RecallMessageResponse(status=OK, message_id="m"),
        ),
        (
            "ForwardMessageToDeadLetterQueue",
            methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE,
            service_pb2.ForwardMessageToDeadLetterQueueRequest(topic=resource("orders"), receipt_handle=handle("b")),
            service_pb2.ForwardMessageToDeadLetterQueueResponse(status=OK),
        ),
        (
            "UpdateOffset",
            methods.UPDATE_OFFSET,
            service_pb2.UpdateOffsetRequest(group=resource("g"), message_queue=queue, offset=3),
            service_pb2.UpdateOffsetResponse(status=OK),
        ),
        (
            "GetOffset",
            methods.GET_OFFSET,
            service_pb2.GetOffsetRequest(group=resource("g"), message_queue=queue),
            service_pb2.GetOffsetResponse(status=OK, offset=3),
        ),
        (
            "QueryOffset",
            methods.QUERY_OFFSET,
            service_pb2.QueryOffsetRequest(message_queue=queue),
            service_pb2.QueryOffsetResponse(status=OK, offset=9),
        ),
    ]
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("b", topic("orders")) as b:
        for _, path, _, answer in calls:
            b.script[path] = answer
        await a.start(nameserver.peer_address)
        await b.start(nameserver.peer_address)
        for method, path, request, answer in calls:
            assert await client.call(method, request) == answer, method
            assert [call.request for call in b.of(path)] == [request.SerializeToString()], method
        assert not a.received


async def test_a_pull_is_streamed_from_the_broker_of_its_queue(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("orders")) as broker:

        async def answers(request: bytes, context: Any) -> AsyncIterator[service_pb2.PullMessageResponse]:
            yield service_pb2.PullMessageResponse(status=OK)
            yield service_pb2.PullMessageResponse(next_offset=12)

        broker.script[methods.PULL_MESSAGE] = answers
        await broker.start(nameserver.peer_address)
        queue = definition_pb2.MessageQueue(topic=resource("orders"), broker=definition_pb2.Broker(name="a"))
        pull = service_pb2.PullMessageRequest(group=resource("g"), message_queue=queue)
        stream = client.messaging.PullMessage(pull, metadata=client.metadata, timeout=5)
        assert [element.WhichOneof("content") async for element in stream] == ["status", "next_offset"]


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("EndTransaction", service_pb2.EndTransactionRequest(transaction_id=""), Code.INVALID_TRANSACTION_ID),
        ("EndTransaction", service_pb2.EndTransactionRequest(transaction_id="x" * 5000), Code.INVALID_TRANSACTION_ID),
        ("RecallMessage", service_pb2.RecallMessageRequest(recall_handle="?"), Code.BAD_REQUEST),
        ("GetOffset", service_pb2.GetOffsetRequest(), Code.BAD_REQUEST),
    ],
)
async def test_what_names_no_broker_is_refused(client: Client, method: str, request_: Any, code: Code) -> None:
    assert code_of(await client.call(method, request_)) is code


async def test_dead_letters_without_a_handle_are_offered_to_every_broker(
    nameserver: NameserverProcess, client: Client
) -> None:
    async with ScriptedBroker("a", topic("orders")) as a, ScriptedBroker("b", topic("orders")) as b:
        response = service_pb2.ForwardMessageToDeadLetterQueueResponse
        path = methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE
        a.script[path] = response(status=status(Code.INVALID_RECEIPT_HANDLE))
        b.script[path] = response(status=OK)
        await a.start(nameserver.peer_address)
        await b.start(nameserver.peer_address)
        forward = service_pb2.ForwardMessageToDeadLetterQueueRequest(
            group=resource("g"), topic=resource("orders"), message_id="m"
        )
        assert code_of(await client.call("ForwardMessageToDeadLetterQueue", forward)) is Code.OK
        b.script[path] = response(status=status(Code.INVALID_RECEIPT_HANDLE))
        answer = await client.call("ForwardMessageToDeadLetterQueue", forward)
        assert code_of(answer) is Code.INVALID_RECEIPT_HANDLE


async def test_lite_subscriptions_need_every_broker(nameserver: NameserverProcess, client: Client) -> None:
    async with ScriptedBroker("a", topic("bind")) as a, ScriptedBroker("b", topic("bind")) as b:
        response = service_pb2.SyncLiteSubscriptionResponse
        for broker in (a, b):
            broker.script[methods.SYNC_LITE_SUBSCRIPTION] = response(status=OK)
            await broker.start(nameserver.peer_address)
        sync = service_pb2.SyncLiteSubscriptionRequest(
            topic=resource("bind"), group=resource("g"), lite_topic_set=["l"]
        )
        assert code_of(await client.call("SyncLiteSubscription", sync)) is Code.OK
        assert [len(broker.of(methods.SYNC_LITE_SUBSCRIPTION)) for broker in (a, b)] == [1, 1]
        b.script[methods.SYNC_LITE_SUBSCRIPTION] = response(status=status(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED))
        assert code_of(await client.call("SyncLiteSubscription", sync)) is Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        await b.lose_peer_port()
        assert code_of(await client.call("SyncLiteSubscription", sync)) is Code.INTERNAL_SERVER_ERROR
