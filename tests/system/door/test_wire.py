"""Conformance on the level of frames: what only a raw HTTP/2 client can send or see (PROTOCOL-HTTP2.md, RFC 9113)."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct

import pytest
from door import wire as h2
from door.conftest import OURS, Door, OpenDoor
from door.probe import path
from door.wire import Answer, Wire, data_frames, grpc_headers, grpc_message

from razzo.door.methods import GrpcStatus
from razzo.door.server import DoorLimits

OK, UNIMPLEMENTED = GrpcStatus.OK.value, GrpcStatus.UNIMPLEMENTED.value
UNARY = pytest.mark.parametrize("method", ["Echo", "EchoBatch"])


def messages(answer: Answer) -> list[bytes]:
    """The messages in the data of an answer."""
    found, data = [], bytes(answer.data)
    while data:
        flag, size = data[0], int.from_bytes(data[1:5], "big")
        assert flag == 0
        assert len(data) >= 5 + size
        found.append(data[5 : 5 + size])
        data = data[5 + size :]
    return found


async def whole_call(wire: Wire, method: str, payload: bytes, *extra: tuple[str, str]) -> Answer:
    stream = wire.new_stream()
    await wire.send(wire.headers(stream, grpc_headers(path(method), extra)), data_frames(stream, payload))
    return await wire.answer(stream)


@UNARY
async def test_answer_has_headers_message_and_trailers(door: Door, method: str) -> None:
    answer = await (await door.wire()).ask(path(method), b"hello")
    assert answer.headers[":status"] == "200"
    assert answer.headers["content-type"].startswith("application/grpc")
    assert (messages(answer), answer.status, answer.frames[0], answer.frames[-1]) == (
        [b"hello"],
        0,
        "HEADERS",
        "TRAILERS",
    )
    assert "grpc-status" in answer.trailers


async def test_server_announces_its_stream_bound_and_acknowledges_settings(open_door: OpenDoor) -> None:
    door = await open_door(limits=DoorLimits(streams_per_connection_max=77))
    wire = await door.wire()
    assert await wire.alive()
    await wire.until(lambda: wire.settings_acks == 1, "settings are acknowledged")
    assert wire.server_settings[h2.MAX_CONCURRENT_STREAMS] == 77


async def test_unknown_method_is_answered_in_one_header_block_or_two(door: Door) -> None:
    answer = await (await door.wire()).ask(path("Nothing"), b"x")
    assert (answer.headers[":status"], answer.status, bytes(answer.data)) == ("200", UNIMPLEMENTED, b"")


async def test_headers_come_at_once_when_the_handler_sends_them(door: Door) -> None:
    wire = await door.wire()
    stream = wire.new_stream()
    await wire.send(wire.headers(stream, grpc_headers(path("Chat"))))
    await wire.until(lambda: wire.stream(stream).frames == ["HEADERS"], "headers before any message")
    assert wire.stream(stream).headers["x-welcome"] == "at once"
    await wire.send(data_frames(stream, grpc_message(b"hi")))
    answer = await wire.answer(stream)
    assert (messages(answer), answer.status) == ([b"hi"], OK)


@pytest.mark.parametrize("method", ["Fail", "FailBatch"])
@pytest.mark.parametrize(
    ("text", "sent"),
    [("plain", "plain"), ("100%", "100%25"), ("a\nb", "a%0Ab"), ("é", "%C3%A9"), ("~ !", "~ !"), ("\x7f", "%7F")],
)
async def test_status_message_is_percent_encoded(door: Door, method: str, text: str, sent: str) -> None:
    answer = await (await door.wire()).ask(path(method), f"5 {text}".encode())
    assert (answer.status, answer.message.upper()) == (5, sent.upper())


@pytest.mark.parametrize(
    "content_type", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"]
)
async def test_content_types_of_grpc(door: Door, content_type: str) -> None:
    wire = await door.wire()
    stream = wire.new_stream()
    headers = grpc_headers(path("EchoBatch"), content_type=content_type)
    await wire.send(wire.headers(stream, headers), data_frames(stream, grpc_message(b"x")))
    assert (await wire.answer(stream)).status == OK


@OURS
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/grpcweb", None])
async def test_other_content_types_are_refused(door: Door, content_type: str | None) -> None:
    """415 as the gRPC specification says. C-core serves whatever the content type is."""
    wire = await door.wire()
    stream = wire.new_stream()
    headers = grpc_headers(path("EchoBatch"), content_type=content_type)
    await wire.send(wire.headers(stream, headers), data_frames(stream, grpc_message(b"x")))
    answer = await wire.answer(stream)
    assert answer.headers[":status"] == "415"
    assert door.probe.batches == []
    assert await wire.alive()


@pytest.mark.parametrize("http_method", ["GET", "PUT", "HEAD"])
async def test_other_http_methods_are_never_served(door: Door, http_method: str) -> None:
    wire = await door.wire()
    stream = wire.new_stream()
    headers = [(key, http_method if key == ":method" else value) for key, value in grpc_headers(path("EchoBatch"))]
    await wire.send(wire.headers(stream, headers), data_frames(stream, grpc_message(b"x")))
    answer = await wire.answer(stream)
    assert answer.over
    assert (answer.status, messages(answer), door.probe.batches) != (OK, [b"x"], [1])
    assert await wire.alive()


@UNARY
async def test_identity_compression_is_no_compression(door: Door, method: str) -> None:
    answer = await whole_call(await door.wire(), method, grpc_message(b"x"), ("grpc-encoding", "identity"))
    assert (messages(answer), answer.status) == ([b"x"], OK)


@UNARY
async def test_gzip_is_served_or_refused_with_what_is_accepted(door: Door, method: str) -> None:
    payload = grpc_message(gzip.compress(b"x" * 100), flag=1)
    answer = await whole_call(await door.wire(), method, payload, ("grpc-encoding", "gzip"))
    if answer.status == OK:
        assert messages(answer) == [b"x" * 100]
    else:
        accepted = answer.headers["grpc-accept-encoding"].replace(" ", "").split(",")
        assert (answer.status, "gzip" in accepted, "identity" in accepted) == (UNIMPLEMENTED, False, True)


@OURS
@UNARY
async def test_unknown_compression_is_unimplemented_and_told_what_is_accepted(door: Door, method: str) -> None:
    answer = await whole_call(await door.wire(), method, grpc_message(b"??", flag=1), ("grpc-encoding", "rot13"))
    assert answer.status == UNIMPLEMENTED
    assert "identity" in answer.headers["grpc-accept-encoding"]


@OURS
@UNARY
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\0",
        b"\0\0\0\0\5abc",
        grpc_message(b"x") + b"\0\0",
        grpc_message(b"x", flag=1),
        grpc_message(b"one") + grpc_message(b"two"),
    ],
    ids=["nothing", "half-prefix", "prefix-less-one", "cut", "and-a-half", "compressed-without-encoding", "two"],
)
async def test_request_that_is_not_one_message_is_refused(door: Door, method: str, payload: bytes) -> None:
    """C-core takes the first of two messages, forgives what follows it, and leaves a request without one open."""
    wire = await door.wire()
    answer = await whole_call(wire, method, payload)
    assert answer.reset is not None or answer.status not in (None, OK)
    assert door.probe.batches == []
    assert await wire.alive()
    assert (await wire.ask(path(method), b"next")).status == OK


@UNARY
@pytest.mark.parametrize("cut", [1, 4, 5, 6, 9, 10, 13, 14])
async def test_request_may_arrive_in_two_pieces(door: Door, method: str, cut: int) -> None:
    """A message in two DATA frames, cut at any byte; the second is sent when the first has been looked at."""
    wire = await door.wire()
    stream = wire.new_stream()
    payload = grpc_message(b"in pieces")
    await wire.send(wire.headers(stream, grpc_headers(path(method))), h2.frame(h2.DATA, 0, stream, payload[:cut]))
    assert await wire.alive()
    assert not wire.stream(stream).over
    await wire.send(h2.frame(h2.DATA, h2.END_STREAM, stream, payload[cut:]))
    assert messages(await wire.answer(stream)) == [b"in pieces"]


@UNARY
async def test_request_may_arrive_byte_by_byte(door: Door, method: str) -> None:
    wire = await door.wire()
    assert await wire.alive()
    stream, frames = wire.call(path(method), b"byte by byte")
    await wire.send_in_pieces(frames[at : at + 1] for at in range(len(frames)))
    assert messages(await wire.answer(stream)) == [b"byte by byte"]


@UNARY
async def test_message_may_span_many_small_frames(door: Door, method: str) -> None:
    wire = await door.wire()
    stream = wire.new_stream()
    payload = grpc_message(bytes(range(256)))
    pieces = [h2.frame(h2.DATA, 0, stream, payload[at : at + 3]) for at in range(0, len(payload), 3)]
    head = wire.headers(stream, grpc_headers(path(method)))
    await wire.send(head, *pieces, h2.frame(h2.DATA, 0, stream), h2.frame(h2.DATA, h2.END_STREAM, stream))
    assert messages(await wire.answer(stream)) == [bytes(range(256))]


async def test_calls_interleaved_on_one_connection(door: Door) -> None:
    """Headers of all, then data of all byte by byte in turn."""
    wire = await door.wire()
    streams = [wire.new_stream() for _ in range(20)]
    await wire.send(*(wire.headers(stream, grpc_headers(path("EchoBatch"))) for stream in streams))
    payloads = {stream: grpc_message(b"call %04d" % stream) for stream in streams}
    for at in range(14):
        for stream in streams:
            flags = h2.END_STREAM if at == 13 else 0
            await wire.send(h2.frame(h2.DATA, flags, stream, payloads[stream][at : at + 1]))
    for stream in streams:
        assert messages(await wire.answer(stream)) == [b"call %04d" % stream]


@OURS
async def test_headers_may_be_continued_and_padded(door: Door) -> None:
    wire = await door.wire()
    stream = wire.new_stream()
    block = wire.block(grpc_headers(path("Echo"), [("x-mq-client-id", "x" * 500)]))
    cut = len(block) // 2
    padded = bytes((4,)) + block[:cut] + bytes(4)
    await wire.send(
        h2.frame(h2.HEADERS, h2.PADDED, stream, padded),
        h2.frame(h2.CONTINUATION, 0, stream, block[cut:-1]),
        h2.frame(h2.CONTINUATION, h2.END_HEADERS, stream, block[-1:]),
        h2.frame(h2.DATA, h2.PADDED | h2.END_STREAM, stream, bytes((7,)) + grpc_message(b"padded") + bytes(7)),
    )
    assert messages(await wire.answer(stream)) == [b"padded"]


async def test_priority_and_unknown_frames_are_ignored(door: Door) -> None:
    wire = await door.wire()
    stream = wire.new_stream()
    weight = struct.pack(">IB", 0, 200)
    block = wire.block(grpc_headers(path("Echo")))
    await wire.send(
        h2.frame(h2.PRIORITY, 0, stream, weight),
        h2.frame(0xEE, 0xFF, 0, b"a frame of the future"),
        h2.frame(h2.HEADERS, h2.END_HEADERS | h2.PRIORITY_FLAG, stream, weight + block),
        h2.frame(0xEF, 0, stream, b"and one more"),
        data_frames(stream, grpc_message(b"x")),
    )
    assert messages(await wire.answer(stream)) == [b"x"]


async def test_pings_are_answered_with_and_without_calls(door: Door) -> None:
    wire = await door.wire()
    assert await wire.alive()
    stream = wire.new_stream()
    await wire.send(wire.headers(stream, grpc_headers(path("Chat"))))
    await door.probe.saw("Chat started")
    for _ in range(20):
        assert await wire.alive()
    assert wire.goaway is None


TIMEOUTS = [("99999999H", 3.6e11), ("5000m", 5), ("7S", 7), ("3M", 180), ("9000000u", 9), ("99999999n", 0.1)]


@pytest.mark.parametrize("method", ["Describe", "DescribeBatch"])
@pytest.mark.parametrize(("timeout", "seconds"), TIMEOUTS)
async def test_grpc_timeout_in_every_unit(door: Door, method: str, timeout: str, seconds: float) -> None:
    answer = await (await door.wire()).ask(path(method), b"", [("grpc-timeout", timeout)])
    left = json.loads(messages(answer)[0])["time_remaining"]
    assert left is None or left <= seconds * 1.05
    if seconds < 3600:
        assert left is not None
        assert left > seconds - 5


@pytest.mark.parametrize("method", ["Wait", "HoldBatch"])
async def test_server_ends_a_call_whose_deadline_has_passed(door: Door, method: str) -> None:
    """A client that leaves its deadline to the server is told, or reset."""
    wire = await door.wire()
    answer = await wire.ask(path(method), b"", [("grpc-timeout", "100m")])
    assert answer.status == GrpcStatus.DEADLINE_EXCEEDED.value or answer.reset is not None
    assert await wire.alive()


@pytest.mark.parametrize("timeout", ["", "S", "10", "123456789S", "-1S", "1.5S", "10x", "abc"])
async def test_malformed_timeout_does_no_harm(door: Door, timeout: str) -> None:
    wire = await door.wire()
    answer = await wire.ask(path("EchoBatch"), b"x", [("grpc-timeout", timeout)])
    assert answer.over
    assert await wire.alive()
    assert (await wire.ask(path("EchoBatch"), b"y")).status == OK


async def test_answers_wait_for_a_small_stream_window(door: Door) -> None:
    """A window of one byte: the answer comes byte by byte as the client grants it."""
    begin = h2.PREFACE + h2.settings((h2.INITIAL_WINDOW_SIZE, 1))
    wire = await door.wire(begin=begin, grant=False)
    stream, frames = wire.call(path("Echo"), b"trickle")
    await wire.send(frames)
    for size in range(1, 13):
        await wire.until(lambda size=size: len(wire.stream(stream).data) == size, f"{size} bytes of the answer")
        await wire.send(h2.window_update(stream, 1))
    assert messages(await wire.answer(stream)) == [b"trickle"]


async def test_answer_is_cut_to_the_frame_size_of_the_client(door: Door) -> None:
    wire = await door.wire()
    answer = await wire.ask(path("Echo"), bytes(60_000))
    assert len(messages(answer)[0]) == 60_000
    assert answer.frames.count("DATA") >= 4


async def test_upload_larger_than_every_window(door: Door) -> None:
    """30 MiB within the windows the server gives: it must give more as it goes."""
    wire = await door.wire()
    assert await wire.alive()
    stream = wire.new_stream()
    payload = grpc_message(bytes(30 << 20))
    await wire.send(wire.headers(stream, grpc_headers(path("Total"))))
    initial = wire.server_settings.get(h2.INITIAL_WINDOW_SIZE, 65_535)

    def given() -> int:
        """All the bytes the server has allowed so far."""
        return min(initial + wire.windows.get(stream, 0), 65_535 + wire.windows.get(0, 0))

    sent = 0
    while sent < len(payload):
        await wire.until(lambda sent=sent: given() > sent, f"window after {sent} bytes")
        size = min(given() - sent, 1 << 20, len(payload) - sent)
        await wire.send(data_frames(stream, payload[sent : sent + size], end=sent + size == len(payload)))
        sent += size
    assert messages(await wire.answer(stream)) == [b"1 31457280"]


async def test_stop_says_goaway_and_finishes_calls_in_flight(door: Door) -> None:
    wire = await door.wire()
    stream, frames = wire.call(path("HoldBatch"), b"held")
    await wire.send(frames)
    await door.probe.saw("HoldBatch held")
    stopping = asyncio.ensure_future(door.server.stop(10))
    await wire.until(lambda: wire.goaway is not None, "GOAWAY")
    assert wire.goaway is not None
    assert wire.goaway[1] == h2.NO_ERROR
    assert not wire.stream(stream).over
    door.probe.held[0].answer(b"in time")
    assert messages(await wire.answer(stream)) == [b"in time"]
    await wire.until_closed()
    await asyncio.wait_for(stopping, 5)
    with pytest.raises(ConnectionRefusedError):
        await door.wire()


async def test_stop_cancels_what_its_grace_does_not_cover(door: Door) -> None:
    wire = await door.wire()
    stream, frames = wire.call(path("Wait"), b"")
    await wire.send(frames)
    await door.probe.saw("Wait started")
    await asyncio.wait_for(door.server.stop(0.1), 5)
    await door.probe.saw("Wait cancelled")
    await wire.answer(stream)
    assert wire.stream(stream).status != OK


async def test_stop_of_an_idle_server_is_quick(door: Door) -> None:
    wire = await door.wire()
    assert (await wire.ask(path("Echo"), b"x")).status == OK
    await asyncio.wait_for(door.server.stop(30), 5)
    await wire.until_closed()
