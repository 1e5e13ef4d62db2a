"""Every bound of `DoorLimits` reached, and the attacks on HTTP/2 that they are for: the answer is the one the bound
names, and the door goes on serving others."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

import pytest
from door import wire as h2
from door.conftest import OURS, OpenDoor, serves_others
from door.probe import path, until
from door.wire import Wire, data_frames, grpc_headers, grpc_message

from razzo.door.methods import GrpcStatus

OK = GrpcStatus.OK.value
EXHAUSTED = GrpcStatus.RESOURCE_EXHAUSTED.value
KIB, MIB = 1 << 10, 1 << 20


# --- connections


@OURS
async def test_connection_above_the_bound_is_closed_at_once(bounded: OpenDoor) -> None:
    door = await bounded(connections_max=5)
    wires = [await door.wire() for _ in range(5)]
    for wire in wires:
        assert await wire.alive()
    await (await door.wire()).until_closed()
    for wire in wires:
        assert (await wire.ask(path("Echo"), b"x")).status == OK
    await wires[0].close()

    async def served() -> bool:
        wire = await door.wire()
        return await wire.alive()

    async with asyncio.timeout(5):
        while not await served():
            pass


@pytest.mark.parametrize("greeting", [b"", h2.PREFACE[:10], h2.PREFACE])
async def test_half_open_connection_is_closed(bounded: OpenDoor, greeting: bytes) -> None:
    """Slowloris: a client that connects and does not finish its greeting. C-core waits for SETTINGS as well."""
    door = await bounded(handshake_s=0.5)
    wire = await door.wire(begin=greeting)
    await wire.until_closed()


@OURS
async def test_greeting_that_trickles_in_is_not_waited_for(bounded: OpenDoor) -> None:
    door = await bounded(handshake_s=0.5)
    wire = await door.wire(begin=b"")
    began = asyncio.get_running_loop().time()
    for byte in h2.PREFACE * 100:
        await wire.send(bytes((byte,)))
        with suppress(TimeoutError):
            await asyncio.wait_for(wire.reader.read(0) if wire.closed else asyncio.Event().wait(), 0.05)
        if wire.closed:
            break
    await wire.until_closed()
    assert asyncio.get_running_loop().time() - began < 5


async def test_idle_connection_is_told_and_closed(bounded: OpenDoor) -> None:
    door = await bounded(idle_s=1.0)
    wire = await door.wire()
    assert (await wire.ask(path("Echo"), b"x")).status == OK
    await wire.until(lambda: wire.goaway is not None, "GOAWAY")
    await wire.until_closed()
    if door.kind != "grpcio":  # whose code is INTERNAL_ERROR
        assert wire.goaway == (1, h2.NO_ERROR, b"")


async def test_connection_with_an_open_call_is_not_idle(bounded: OpenDoor) -> None:
    door = await bounded(idle_s=0.5, keepalive_s=60.0)
    busy, idle_one = await door.wire(), await door.wire()
    stream = busy.new_stream()
    await busy.send(busy.headers(stream, grpc_headers(path("Chat"))))
    await door.probe.saw("Chat started")
    assert await idle_one.alive()
    await idle_one.until_closed()
    assert busy.goaway is None
    await busy.send(data_frames(stream, grpc_message(b"still here")))
    assert bytes((await busy.answer(stream)).data) == grpc_message(b"still here")


@OURS
async def test_silent_connection_with_a_call_is_pinged_and_then_given_up(bounded: OpenDoor) -> None:
    door = await bounded(keepalive_s=0.3)
    wire = await door.wire()
    await wire.send(wire.headers(wire.new_stream(), grpc_headers(path("Chat"))))
    await door.probe.saw("Chat started")
    await wire.until(lambda: len(wire.pings) >= 2, "two pings of the server")
    assert not wire.closed
    wire.ack_pings = False
    await wire.until_closed()
    await door.probe.saw("Chat cancelled")


@OURS
async def test_garbage_is_closed_at_once(bounded: OpenDoor) -> None:
    door = await bounded()
    for garbage in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 100,
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"\xff" * 5000,
    ):
        await (await door.wire(begin=garbage)).until_closed()


@OURS
async def test_a_thousand_connections_at_once(bounded: OpenDoor) -> None:
    door = await bounded()
    wires: list[Wire] = []
    while len(wires) < 1_000:
        wires += await asyncio.gather(*(door.wire() for _ in range(100)))
    answers = await asyncio.gather(*(wire.ask(path("EchoBatch"), b"%d" % n) for n, wire in enumerate(wires)))
    assert [answer.status for answer in answers] == [OK] * 1_000
    assert [bytes(answer.data[5:]) for answer in answers] == [b"%d" % n for n in range(1_000)]


# --- streams and headers


async def test_stream_above_the_bound_is_refused(bounded: OpenDoor) -> None:
    door = await bounded(streams_per_connection_max=8)
    wire = await door.wire()
    assert await wire.alive()
    streams = [wire.new_stream() for _ in range(8)]
    await wire.send(*(wire.headers(stream, grpc_headers(path("Chat"))) for stream in streams))
    await door.probe.saw("Chat started", 8)
    extra, frames = wire.call(path("Echo"), b"x")
    await wire.send(frames)
    answer = await wire.answer(extra)
    assert answer.reset == h2.REFUSED_STREAM or wire.goaway is not None or answer.status == OK - 1
    if wire.goaway is None:
        await wire.send(data_frames(streams[0], b""))
        await wire.answer(streams[0])
        assert (await wire.ask(path("Echo"), b"x")).status == OK


@OURS
@pytest.mark.parametrize("pairs", [[("x-long", "x" * 30_000)], [(f"x-{n}", "y" * 50) for n in range(400)]])
async def test_headers_above_the_bound_are_refused(bounded: OpenDoor, pairs: list[tuple[str, str]]) -> None:
    door = await bounded(header_bytes_max=16 * KIB)
    wire = await door.wire()
    stream = wire.new_stream()
    block = wire.block(grpc_headers(path("EchoBatch"), pairs))
    first, *rest = [block[at : at + 10_000] for at in range(0, len(block), 10_000)]
    await wire.send(h2.frame(h2.HEADERS, 0 if rest else h2.END_HEADERS, stream, first))
    for number, piece in enumerate(rest):
        await wire.send(h2.frame(h2.CONTINUATION, h2.END_HEADERS if number == len(rest) - 1 else 0, stream, piece))
    await wire.send(data_frames(stream, grpc_message(b"x")))
    answer = await wire.answer(stream)
    assert answer.status == EXHAUSTED or answer.reset is not None
    assert door.probe.batches == []
    assert (await wire.ask(path("Echo"), b"x")).status == OK


@OURS
async def test_large_headers_within_the_bound_are_served(bounded: OpenDoor) -> None:
    door = await bounded(header_bytes_max=16 * KIB)
    pairs = [(f"x-{n}", "y" * 100) for n in range(100)]
    assert (await (await door.wire()).ask(path("EchoBatch"), b"x", pairs)).status == OK


async def test_continuation_flood_is_ended(bounded: OpenDoor) -> None:
    """CVE-2024-27316 and its like: a header block that never ends must not be kept."""
    door = await bounded()
    wire = await door.wire()
    stream = wire.new_stream()
    await wire.send(h2.frame(h2.HEADERS, 0, stream, wire.block(grpc_headers(path("Echo")))))
    literal = b"\x00\x03x-a\x7f\x81\x01" + b"b" * 256  # never indexed in the table: 127 + 129 bytes of value
    for _ in range(2_000):
        await wire.send(h2.frame(h2.CONTINUATION, 0, stream, literal * 60))
        if wire.closed:
            break
    await wire.until_closed()


@OURS
async def test_empty_continuation_flood_is_ended(bounded: OpenDoor) -> None:
    """CVE-2019-9518: frames that cost nothing to send."""
    door = await bounded()
    wire = await door.wire()
    await wire.send(h2.frame(h2.HEADERS, 0, wire.new_stream(), b""))
    for _ in range(200):
        await wire.send(h2.frame(h2.CONTINUATION, 0, 1, b"") * 100)
        if wire.closed:
            break
    await wire.until_closed()


async def test_header_bomb_is_not_unpacked(bounded: OpenDoor) -> None:
    """One large value in the compression table, referred to by a byte each: 4 KB sent would be 16 MB of headers."""
    door = await bounded()
    wire = await door.wire()
    assert await wire.alive()
    stream = wire.new_stream()
    block = wire.block([*grpc_headers(path("EchoBatch")), ("x-bomb", "b" * 3_900)])
    newest = b"\xbe"  # index 62: the entry added last
    await wire.send(
        h2.frame(h2.HEADERS, 0, stream, block), h2.frame(h2.CONTINUATION, h2.END_HEADERS, stream, newest * 4_000)
    )
    await wire.send(data_frames(stream, grpc_message(b"x")))
    answer = await wire.answer(stream)
    assert answer.status != OK
    assert door.probe.batches == []


# --- bytes


@OURS
async def test_half_received_requests_have_a_budget(bounded: OpenDoor) -> None:
    door = await bounded(buffered_request_bytes_max=2 * MIB)
    wire = await door.wire()
    assert await wire.alive()
    streams = []
    for _ in range(6):
        stream = wire.new_stream()
        streams.append(stream)
        prefix = b"\0" + (1 * MIB).to_bytes(4, "big")
        await wire.send(
            wire.headers(stream, grpc_headers(path("EchoBatch"))),
            data_frames(stream, prefix + bytes(700 * KIB), end=False),
        )
    await wire.until(lambda: any(wire.stream(s).over for s in streams) or wire.closed, "a call is refused")
    refused = [wire.stream(stream) for stream in streams if wire.stream(stream).over]
    assert {answer.status for answer in refused} == {EXHAUSTED}
    assert not wire.closed


@OURS
async def test_half_received_requests_have_a_budget_for_all_connections(bounded: OpenDoor) -> None:
    door = await bounded(buffered_total_bytes_max=3 * MIB)
    prefix = b"\0" + (1 * MIB).to_bytes(4, "big")
    wires = [await door.wire() for _ in range(8)]
    for wire in wires:
        assert await wire.alive()  # the server's windows hold from its SETTINGS on
        stream = wire.new_stream()
        await wire.send(
            wire.headers(stream, grpc_headers(path("EchoBatch"))),
            data_frames(stream, prefix + bytes(700 * KIB), end=False),
        )
    await until(lambda: any(wire.stream(1).over for wire in wires), "a call is refused")
    over = [wire.stream(1) for wire in wires if wire.stream(1).over]
    assert {answer.status for answer in over} == {EXHAUSTED}, over


@OURS
async def test_client_that_never_reads_its_answers_stops_being_read(bounded: OpenDoor) -> None:
    """Large unary answers that nobody takes: the door stops serving that connection, not the others."""
    door = await bounded(unsent_connection_bytes_max=4 * MIB)
    wire = await door.wire(begin=h2.PREFACE + h2.settings((h2.INITIAL_WINDOW_SIZE, 0)), grant=False)
    assert await wire.alive()
    for _ in range(100):
        await wire.send(wire.call(path("EchoBatch"), bytes(200 * KIB))[1])
    await serves_others(door)
    await asyncio.wait_for(serves_others(door), 5)
    answered = sum(door.probe.batches) - 2
    assert answered * 200 * KIB < 4 * MIB + 30 * 200 * KIB
    await wire.send(h2.settings((h2.INITIAL_WINDOW_SIZE, 1 << 20)), h2.window_update(0, 1 << 30))
    await wire.until(lambda: sum(answer.status == OK for answer in wire.streams.values()) == 100, "all are answered")


async def test_streams_that_nobody_reads_stall_only_themselves(bounded: OpenDoor) -> None:
    """Zero-window stall on many streams."""
    door = await bounded(unsent_stream_bytes_max=64 * KIB, unsent_connection_bytes_max=8 * MIB)
    wire = await door.wire(begin=h2.PREFACE + h2.settings((h2.INITIAL_WINDOW_SIZE, 0)), grant=False)
    assert await wire.alive()
    for _ in range(90):
        await wire.send(wire.call(path("Flood"), b"10000")[1])
    await door.probe.saw("Flood started", 90)
    for _ in range(20):
        await serves_others(door)
    assert door.probe.flooded_bytes < 90 * (64 * KIB + 20_000) + 2 * MIB
    await wire.close()
    await door.probe.saw("Flood cancelled", 90)


@OURS
async def test_client_that_never_reads_its_socket_is_bounded(bounded: OpenDoor) -> None:
    door = await bounded(unsent_stream_bytes_max=256 * KIB, unsent_connection_bytes_max=1 * MIB)
    begin = h2.PREFACE + h2.settings((h2.INITIAL_WINDOW_SIZE, 0x7FFFFFFF)) + h2.window_update(0, 0x7FFFFFFF - 65_535)
    wire = await door.wire(begin=begin, grant=False)
    assert await wire.alive()
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(10):
        await wire.send(wire.call(path("Flood"), b"100000")[1])
    await door.probe.saw("Flood started", 10)
    stalls = 0
    while stalls < 20:
        before = door.probe.flooded_bytes
        await serves_others(door)
        stalls = stalls + 1 if door.probe.flooded_bytes == before else 0
    assert door.probe.flooded_bytes < 32 * MIB  # ours, and the kernel's socket buffers
    await wire.close()
    await door.probe.saw("Flood cancelled", 10)


@OURS
async def test_more_data_than_the_window_is_a_flow_control_error(bounded: OpenDoor) -> None:
    door = await bounded()
    wire = await door.wire()
    assert await wire.alive()
    stream = wire.new_stream()
    await wire.send(wire.headers(stream, grpc_headers(path("Deaf"))))
    await door.probe.saw("Deaf started")
    more = h2.frame(h2.DATA, 0, stream, grpc_message(bytes(16_379)))
    await wire.send(more * 1_100)  # 17 MiB: more than a stream's window, and than the connection's
    answer = await wire.answer(stream)
    assert answer.reset == h2.FLOW_CONTROL_ERROR or (wire.goaway or (0, 0))[1] == h2.FLOW_CONTROL_ERROR


@OURS
@pytest.mark.parametrize("stream", [0, 1])
async def test_window_above_its_maximum_is_a_flow_control_error(bounded: OpenDoor, stream: int) -> None:
    door = await bounded()
    wire = await door.wire()
    await wire.send(wire.headers(1, grpc_headers(path("Chat"))))
    await wire.send(h2.window_update(stream, 0x7FFFFFFF), h2.window_update(stream, 0x7FFFFFFF))
    if stream:
        assert (await wire.answer(1)).reset == h2.FLOW_CONTROL_ERROR
    else:
        await wire.until(lambda: wire.goaway is not None or wire.closed, "the connection ends")
        assert wire.goaway is not None
        assert wire.goaway[1] == h2.FLOW_CONTROL_ERROR


# --- floods


@OURS
async def test_rapid_reset_is_ended(bounded: OpenDoor) -> None:
    """CVE-2023-44487: calls that are reset as soon as they are sent."""
    door = await bounded(resets_per_s_max=50)
    wire = await door.wire()
    for _ in range(100):
        burst = b""
        for _ in range(20):
            stream, frames = wire.call(path("EchoBatch"), b"x")
            burst += frames + h2.rst_stream(stream)
        await wire.send(burst)
        if wire.closed:
            break
    await wire.until_closed()
    assert wire.goaway is not None
    assert wire.goaway[1] == h2.ENHANCE_YOUR_CALM


@OURS
async def test_resets_below_the_bound_are_taken(bounded: OpenDoor) -> None:
    door = await bounded(resets_per_s_max=1_000)
    wire = await door.wire()
    for _ in range(500):
        stream, frames = wire.call(path("Wait"), b"x")
        await wire.send(frames, h2.rst_stream(stream))
    assert await wire.alive()
    assert wire.goaway is None


@OURS
async def test_ping_flood_is_ended(bounded: OpenDoor) -> None:
    door = await bounded(pings_per_s_max=20)
    wire = await door.wire()
    assert await wire.alive()
    await wire.send(h2.ping() * 5_000)
    await wire.until_closed()
    assert wire.goaway is not None
    assert wire.goaway[1] == h2.ENHANCE_YOUR_CALM


@OURS
@pytest.mark.parametrize(
    "flood",
    [
        h2.settings((h2.INITIAL_WINDOW_SIZE, 65_535)),
        h2.frame(h2.PRIORITY, 0, 1, struct.pack(">IB", 0, 1)),
        h2.frame(0xEE, 0, 0, b""),
        h2.window_update(0, 1),
        h2.frame(h2.SETTINGS, h2.ACK, 0),
    ],
    ids=["settings", "priority", "unknown", "window", "acks"],
)
async def test_frame_flood_is_ended_or_taken_without_growing(bounded: OpenDoor, flood: bytes) -> None:
    """A hundred thousand frames that mean nothing, answers unread: memory must not follow them."""
    door = await bounded()
    wire = await door.wire(grant=False)
    assert await wire.alive()
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    before = resident_bytes()
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            for _ in range(100):
                await wire.send(flood * 1_000)
    assert resident_bytes() - before < 48 * MIB  # the client's own write buffer is in this process too


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@OURS
async def test_empty_data_flood_is_ended_or_harmless(bounded: OpenDoor) -> None:
    """CVE-2019-9518: empty DATA frames without end."""
    door = await bounded()
    wire = await door.wire()
    stream = wire.new_stream()
    await wire.send(wire.headers(stream, grpc_headers(path("EchoBatch"))))
    for _ in range(100):
        await wire.send(h2.frame(h2.DATA, 0, stream) * 200)
        if wire.closed:
            break
    await wire.send(data_frames(stream, grpc_message(b"x")))
    assert wire.closed or (await wire.answer(stream)).over
