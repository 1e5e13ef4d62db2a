"""Conformance: what a gRPC client (C-core, as in Python and C++) sees of a door, the same on each kind of server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from door.conftest import Door, OpenDoor
from door.probe import path, until

from razzo.door.methods import GrpcStatus
from razzo.door.server import DoorLimits

UNARY = pytest.mark.parametrize("method", ["Echo", "EchoBatch"])
MIB = 1 << 20
UNLIMITED = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}


async def refused(call: Awaitable[Any]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@UNARY
@pytest.mark.parametrize("size", [0, 1, 1024, 16_379, 16_384, 70_000, 3 * MIB])
async def test_unary_call_carries_a_message_both_ways(door: Door, method: str, size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert await door.channel(**UNLIMITED).unary_unary(path(method))(message) == message


@UNARY
async def test_many_calls_at_once_get_their_own_answers(door: Door, method: str) -> None:
    call = door.channel().unary_unary(path(method))
    answers = await asyncio.gather(*(call(b"%d" % number) for number in range(500)))
    assert answers == [b"%d" % number for number in range(500)]


async def test_no_batch_is_larger_than_its_bound(open_door: OpenDoor) -> None:
    door = await open_door(limits=DoorLimits(batch_calls_max=4))
    call = door.channel().unary_unary(path("EchoBatch"))
    await asyncio.gather(*(call(b"%d" % number) for number in range(100)))
    assert max(door.probe.batches) <= 4
    assert sum(door.probe.batches) == 100


async def test_batch_calls_may_be_answered_later_and_in_any_order(door: Door) -> None:
    method = door.channel().unary_unary(path("HoldBatch"))
    calls = [method(b"%d" % number) for number in range(10)]
    await door.probe.saw("HoldBatch held", 10)
    for held in reversed(door.probe.held):
        held.answer(held.request + b" answered")
    assert [await call for call in calls] == [b"%d answered" % number for number in range(10)]


async def test_calls_may_be_answered_all_at_once(door: Door) -> None:
    call = door.channel().unary_unary(path("ManyBatch"))
    answers = await asyncio.gather(*(call(b"%d" % number) for number in range(500)))
    assert answers == [b"%d" % number for number in range(500)]


async def test_some_calls_of_a_batch_may_fail(door: Door) -> None:
    method = door.channel().unary_unary(path("HoldBatch"))
    calls = [method(b"%d" % number) for number in range(6)]
    await door.probe.saw("HoldBatch held", 6)
    for held in door.probe.held:
        if int(held.request) % 2:
            held.fail(GrpcStatus.NOT_FOUND, "odd")
        else:
            held.answer(b"even")
    assert [await calls[number] for number in (0, 2, 4)] == [b"even"] * 3
    for number in (1, 3, 5):
        assert (await refused(calls[number])).code() is grpc.StatusCode.NOT_FOUND


async def test_answer_to_a_client_that_has_gone_is_dropped(door: Door) -> None:
    channel = door.channel()
    call = channel.unary_unary(path("HoldBatch"))(b"x")
    await door.probe.saw("HoldBatch held")
    call.cancel()
    echo = channel.unary_unary(path("EchoBatch"))
    assert await echo(b"the cancel has arrived before this") == b"the cancel has arrived before this"
    door.probe.held[0].answer(b"nobody hears this")
    assert await echo(b"still here") == b"still here"


@pytest.mark.parametrize("method", ["Count", "Raw"])
@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 0), (3, 10), (2000, 0), (300, 5000), (3, MIB)])
async def test_server_stream_delivers_all_messages_in_order(door: Door, method: str, count: int, size: int) -> None:
    stream = door.channel(**UNLIMITED).unary_stream(path(method))(b"%d %d" % (count, size))
    expected = [b"%d " % number + bytes(size) for number in range(count)]
    assert [message async for message in stream] == expected
    assert await stream.code() is grpc.StatusCode.OK


async def test_stream_may_fail_after_a_message(door: Door) -> None:
    stream = door.channel().unary_stream(path("FailStream"))(b"8 too much")
    assert await stream.read() == b"first"
    error = await refused(stream.read())
    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
    assert ("t-reason", "asked for") in tuple(error.trailing_metadata())


async def test_bidi_is_a_conversation(door: Door) -> None:
    chat = door.channel().stream_stream(path("Chat"))()
    for number in range(100):
        await chat.write(b"%d" % number)
        assert await chat.read() == b"%d" % number
    await chat.done_writing()
    assert await chat.read() is grpc.aio.EOF
    assert await chat.code() is grpc.StatusCode.OK


async def test_bidi_headers_come_before_any_message(door: Door) -> None:
    chat = door.channel().stream_stream(path("Chat"))()
    async with asyncio.timeout(5):
        assert ("x-welcome", "at once") in tuple(await chat.initial_metadata())
    await chat.write(b"then this")
    assert await chat.read() == b"then this"


async def test_bidi_handler_may_talk_first_and_hears_the_half_close(door: Door) -> None:
    talk = door.channel().stream_stream(path("Talk"))()
    assert [await talk.read() for _ in range(10)] == [b"%d" % number for number in range(10)]
    await talk.write(b"yes?")
    await talk.done_writing()
    assert await talk.read() is grpc.aio.EOF
    assert door.probe.notes["Talk heard"] == 1


async def test_bidi_takes_a_stream_of_requests(door: Door) -> None:
    async def requests() -> AsyncIterator[bytes]:
        for number in range(1000):
            yield bytes(number)

    total = door.channel().stream_stream(path("Total"))(requests())
    assert await total.read() == b"1000 499500"
    assert await total.read() is grpc.aio.EOF


async def test_bidi_may_fail_while_the_client_still_writes(door: Door) -> None:
    chat = door.channel().stream_stream(path("FailChat"))()
    await chat.write(b"3 not like this")
    error = await refused(chat.read())
    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "not like this")


@pytest.mark.parametrize("method", ["Fail", "FailBatch"])
@pytest.mark.parametrize("status", [status for status in GrpcStatus if status is not GrpcStatus.OK])
async def test_every_status_reaches_the_client(door: Door, method: str, status: GrpcStatus) -> None:
    error = await refused(door.channel().unary_unary(path(method))(b"%d because" % status.value))
    assert (error.code().value[0], error.details()) == (status.value, "because")


@pytest.mark.parametrize("method", ["Fail", "FailBatch"])
@pytest.mark.parametrize("text", ["", "100 % sure", "two\nlines\tand a tab", "Grüße, 消息队列", "x" * 3000, " spaces "])
async def test_status_message_is_sent_as_it_is(door: Door, method: str, text: str) -> None:
    error = await refused(door.channel().unary_unary(path(method))(f"9 {text}".encode()))
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, text)


@pytest.mark.parametrize("method", ["Crash", "CrashBatch"])
async def test_failing_handler_is_an_internal_error_that_names_no_internals(door: Door, method: str) -> None:
    error = await refused(door.channel().unary_unary(path(method))(b""))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (error.details() or "")


@pytest.mark.parametrize("unknown", [path("Nothing"), "/razzo.test.Nobody/Echo", "/Echo", "/"])
async def test_unknown_method_is_unimplemented(door: Door, unknown: str) -> None:
    error = await refused(door.channel().unary_unary(unknown)(b"x"))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


METADATA = (
    ("i-text", "plain"),
    ("i-text", "a second value of the same key"),
    ("i-data-bin", bytes(range(256))),
    ("i-empty-bin", b""),
    ("i-odd-bin", b"\x00"),
    ("t-text", "at the end"),
    ("t-data-bin", b"\xff\xfe\x00" * 7),
)


@pytest.mark.parametrize("request_", [b"", b"9 refused"])
async def test_metadata_both_ways(door: Door, request_: bytes) -> None:
    call = door.channel().unary_unary(path("Mirror"))(request_, metadata=METADATA)
    initial = [tuple(pair) for pair in await call.initial_metadata()]
    trailing = [tuple(pair) for pair in await call.trailing_metadata()]
    assert [pair for pair in initial if pair[0].startswith("i-")] == [*METADATA[:5]]
    assert [pair for pair in trailing if pair[0].startswith("t-")] == [*METADATA[5:]]
    assert (await call.code()).value[0] == (9 if request_ else 0)


@pytest.mark.parametrize("method", ["Describe", "DescribeBatch"])
async def test_call_knows_itself(door: Door, method: str) -> None:
    metadata = (("x-mq-client-id", "host@1@0@x"), ("x-mq-namespace", ""), ("data-bin", b"\x01\x02"))
    told = json.loads(await door.channel().unary_unary(path(method))(b"", metadata=metadata, timeout=30))
    assert told["path"] == path(method)
    assert told["peer"].startswith("ipv4:127.0.0.1:")
    assert told["secure"] is False
    assert (told["client_id"], told["absent"]) == ("host@1@0@x", None)
    assert 25 < told["time_remaining"] <= 31  # C-core rounds up what it sends
    pairs = [tuple(pair) for pair in told["metadata"]]
    for pair in (("x-mq-client-id", "host@1@0@x"), ("x-mq-namespace", ""), ("data-bin", "0102")):
        assert pair in pairs
    keys = [key for key, _ in pairs]
    assert "user-agent" in keys
    assert [key for key in keys if key.startswith((":", "grpc-"))] == []


@pytest.mark.parametrize("method", ["Describe", "DescribeBatch"])
async def test_call_without_deadline_has_no_time_remaining(door: Door, method: str) -> None:
    told = json.loads(await door.channel().unary_unary(path(method))(b""))
    assert told["time_remaining"] is None


async def test_deadline_ends_a_call_and_cancels_its_handler(door: Door) -> None:
    error = await refused(door.channel().unary_unary(path("Wait"))(b"", timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await door.probe.saw("Wait cancelled")


async def test_deadline_ends_a_stream_and_cancels_its_handler(door: Door) -> None:
    stream = door.channel().unary_stream(path("WaitStream"))(b"", timeout=0.3)
    assert await stream.read() == b"first"
    assert (await refused(stream.read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await door.probe.saw("WaitStream cancelled")


async def test_held_batch_call_ends_at_its_deadline(door: Door) -> None:
    error = await refused(door.channel().unary_unary(path("HoldBatch"))(b"request", timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    held = door.probe.held[0]
    assert (held.request, held.path) == (b"request", path("HoldBatch")), "a handler may look at what it holds"
    held.answer(b"too late")
    assert await door.channel().unary_unary(path("Echo"))(b"still here") == b"still here"


Begin = Callable[[grpc.aio.Channel], Any]
WAITING: dict[str, Begin] = {
    "Wait": lambda channel: channel.unary_unary(path("Wait"))(b""),
    "WaitStream": lambda channel: channel.unary_stream(path("WaitStream"))(b""),
    "Flood": lambda channel: channel.unary_stream(path("Flood"))(b"50000"),
    "Chat": lambda channel: channel.stream_stream(path("Chat"))(),
}


@pytest.mark.parametrize("who", WAITING)
async def test_cancel_reaches_the_handler(door: Door, who: str) -> None:
    """A cancelled conversation may look like an ended one on C-core, which reports the end of messages first."""
    channel = door.channel()
    call = WAITING[who](channel)
    await door.probe.saw(f"{who} started")
    call.cancel()
    await door.probe.saw("Chat over" if who == "Chat" and door.kind == "grpcio" else f"{who} cancelled")
    assert await channel.unary_unary(path("Echo"))(b"the connection lives") == b"the connection lives"


@pytest.mark.parametrize("who", WAITING)
async def test_loss_of_the_connection_reaches_the_handler(door: Door, who: str) -> None:
    async with grpc.aio.insecure_channel(door.address) as channel:
        call = WAITING[who](channel)
        await door.probe.saw(f"{who} started")
        await channel.close(None)
        await door.probe.saw("Chat over" if who == "Chat" and door.kind == "grpcio" else f"{who} cancelled")
        assert call.done()


LIMITS = DoorLimits(request_bytes_max=100_000, response_bytes_max=50_000)


@UNARY
async def test_request_above_the_bound_is_resource_exhausted(open_door: OpenDoor, method: str) -> None:
    door = await open_door(limits=LIMITS)
    call = door.channel().unary_unary(path(method))
    assert (await refused(call(bytes(100_001)))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await refused(call(bytes(60_000)))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # as an answer
    assert await call(bytes(50_000)) == bytes(50_000)


@pytest.mark.parametrize("method", ["Count", "Raw"])
async def test_streamed_answer_above_the_bound_is_resource_exhausted(open_door: OpenDoor, method: str) -> None:
    door = await open_door(limits=LIMITS)
    call = door.channel().unary_stream(path(method))
    assert len([message async for message in call(b"2 49998")]) == 2
    stream = call(b"1 50001")
    assert (await refused(stream.read())).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_streamed_request_above_the_bound_is_resource_exhausted(open_door: OpenDoor) -> None:
    door = await open_door(limits=LIMITS)
    chat = door.channel().stream_stream(path("Total"))()
    await chat.write(bytes(100_000))
    await chat.write(bytes(100_001))
    assert (await refused(chat.read())).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("method", ["Echo", "EchoBatch"])
async def test_gzip_is_inflated_or_refused_by_name(door: Door, method: str) -> None:
    """A client that compresses without being asked gets its answer, or a refusal that it understands."""
    call = door.channel().unary_unary(path(method))(bytes(10_000), compression=grpc.Compression.Gzip)
    status = await call.code()
    if status is grpc.StatusCode.OK:
        assert await call == bytes(10_000)
    else:
        assert status is grpc.StatusCode.UNIMPLEMENTED
    assert await door.channel().unary_unary(path(method))(b"plain") == b"plain"


async def test_slow_reader_holds_its_writer_back(open_door: OpenDoor) -> None:
    """A client that does not read stops the handler of its stream, not the other calls of the connection."""
    door = await open_door(limits=DoorLimits(unsent_stream_bytes_max=256 * 1024))
    channel = door.channel()
    stream = channel.unary_stream(path("Flood"))(b"10000")
    await door.probe.saw("Flood started")
    stalls = 0
    while stalls < 20:  # the writer has made no step while twenty other calls were served
        before = door.probe.flooded_bytes
        assert await channel.unary_unary(path("Echo"))(b"others pass") == b"others pass"
        stalls = stalls + 1 if door.probe.flooded_bytes == before else 0
    assert door.probe.flooded_bytes < 20 * MIB
    before = door.probe.flooded_bytes
    for _ in range(before // 10_000 + 100):
        assert len(await stream.read()) == 10_000
    await until(lambda: door.probe.flooded_bytes > before, "the writer goes on when the client reads")


async def test_answers_flow_while_a_large_request_is_on_its_way(door: Door) -> None:
    channel = door.channel(**UNLIMITED)
    large = [asyncio.ensure_future(channel.unary_unary(path("Echo"))(bytes(8 * MIB))) for _ in range(3)]
    small = channel.unary_unary(path("EchoBatch"))
    answers = await asyncio.gather(*(small(b"%d" % number) for number in range(200)))
    assert answers == [b"%d" % number for number in range(200)]
    for answer in await asyncio.gather(*large):
        assert len(answer) == 8 * MIB
