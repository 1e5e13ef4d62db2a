"""Frames and headers that break the rules of HTTP/2, and clients that go away in the middle: the answer is the one that
RFC 9113 asks for, and the door goes on serving others."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from door import wire as h2
from door.conftest import OURS, OpenDoor, idle
from door.probe import path, until
from door.wire import data_frames, grpc_headers, grpc_message

from razzo.door.methods import GrpcStatus

OK = GrpcStatus.OK.value


BAD_FRAMES = {
    "data on stream 0": h2.frame(h2.DATA, 0, 0, b"x"),
    "headers on stream 0": h2.frame(h2.HEADERS, h2.END_HEADERS, 0, b"\x82"),
    "even stream": h2.frame(h2.HEADERS, h2.END_HEADERS, 2, b"\x83\x86\x84"),
    "continuation without headers": h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, b"\x82"),
    "headers interrupted": h2.frame(h2.HEADERS, 0, 1, b"\x82") + h2.ping(),
    "compression broken": h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    "settings of five bytes": h2.frame(h2.SETTINGS, 0, 0, b"12345"),
    "settings on a stream": h2.frame(h2.SETTINGS, 0, 1, b""),
    "ping of seven bytes": h2.frame(h2.PING, 0, 0, b"1234567"),
    "window update of zero": h2.window_update(0, 0),
    "frame too large": h2.frame(h2.DATA, 0, 1, bytes(20_000)),
    "padding larger than the frame": h2.frame(h2.HEADERS, h2.PADDED | h2.END_HEADERS, 1, b"\xff\x82"),
    "push promise": h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, b"\0\0\0\2\x82"),
    "reset of a stream never opened": h2.rst_stream(99),
    "push switched on wrongly": h2.settings((h2.ENABLE_PUSH, 2)),
    "window too large": h2.settings((h2.INITIAL_WINDOW_SIZE, 1 << 31)),
    "max frame too small": h2.settings((h2.MAX_FRAME_SIZE, 1)),
}


@OURS
@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_connection_error_is_a_goaway(bounded: OpenDoor, name: str) -> None:
    door = await bounded()
    wire = await door.wire()
    assert await wire.alive()
    await wire.send(BAD_FRAMES[name])
    await wire.until_closed()
    assert wire.goaway is not None
    assert wire.goaway[1] != h2.NO_ERROR


BAD_HEADERS: dict[str, list[tuple[str, str]]] = {
    "upper case": [*grpc_headers(path("EchoBatch")), ("X-Upper", "x")],
    "connection header": [*grpc_headers(path("EchoBatch")), ("connection", "close")],
    "pseudo header last": [*grpc_headers(path("EchoBatch"))[1:], (":method", "POST")],
    "no path": [pair for pair in grpc_headers(path("EchoBatch")) if pair[0] != ":path"],
    "two paths": [(":path", path("Echo")), *grpc_headers(path("EchoBatch"))],
    "response pseudo header": [(":status", "200"), *grpc_headers(path("EchoBatch"))],
    "control characters": [*grpc_headers(path("EchoBatch")), ("x-a", "a\r\nb: c")],
}


@OURS
@pytest.mark.parametrize("name", BAD_HEADERS)
async def test_malformed_headers_end_their_stream_only(bounded: OpenDoor, name: str) -> None:
    door = await bounded()
    wire = await door.wire()
    stream = wire.new_stream()
    await wire.send(wire.headers(stream, BAD_HEADERS[name]), data_frames(stream, grpc_message(b"x")))
    answer = await wire.answer(stream)
    assert answer.reset is not None
    assert door.probe.batches == []
    assert (await wire.ask(path("EchoBatch"), b"next")).status == OK


async def test_client_may_go_in_the_middle_of_anything(bounded: OpenDoor) -> None:
    """Connections cut after every byte of a call; half of them by a reset."""
    door = await bounded()
    whole = await door.wire()
    frames = h2.PREFACE + h2.settings() + whole.call(path("Chat"), b"x")[1] + whole.call(path("EchoBatch"), b"y")[1]
    for size in range(0, len(frames), 3):
        wire = await door.wire(begin=b"")
        await wire.send(frames[:size])
        if size % 2:
            wire.writer.transport.abort()
        else:
            wire.writer.close()
    await until(lambda: idle(door), "no call is left")


async def test_call_survives_a_client_of_the_library_that_is_killed(bounded: OpenDoor) -> None:
    door = await bounded()
    async with grpc.aio.insecure_channel(door.address) as channel:
        calls = [channel.unary_unary(path("HoldBatch"))(b"x") for _ in range(50)]
        await door.probe.saw("HoldBatch held", 50)
        await channel.close(None)
        assert all(call.done() for call in calls)
    for held in door.probe.held:
        held.answer(bytes(100_000))
