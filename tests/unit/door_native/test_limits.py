"""Every bound of a door is reached here, with a client that no gRPC library would be."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from door import wire as h2
from door.probe import until

from razzo.door.methods import BatchCall, Call, MethodTable

ECHO, HOLD, BIG, CHAT, FLOOD = (f"/t.S/{name}" for name in ("Echo", "Hold", "Big", "Chat", "Flood"))
MIB = 1 << 20


class Probe:
    def __init__(self) -> None:
        self.held: list[BatchCall] = []
        self.seen: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.table = MethodTable()
        self.table.unary_batch(ECHO, self.echo)
        self.table.unary_batch(HOLD, lambda calls: self.held.extend(calls))
        self.table.unary_batch(BIG, self.big)
        self.table.bidi(CHAT, self.chat)
        self.table.server_stream(FLOOD, self.flood)

    def echo(self, calls: list[BatchCall]) -> None:
        self.seen["echo"] += len(calls)
        for call in calls:
            call.answer(call.request)

    def big(self, calls: list[BatchCall]) -> None:
        for call in calls:
            self.seen["big"] += 1
            call.answer(bytes(int(call.request)))

    async def chat(self, call: Call) -> None:
        """Takes messages only when it may."""
        await self.go.wait()
        async for _ in call:
            self.seen["chat"] += 1

    async def flood(self, request: bytes, call: Call) -> None:
        try:
            for _ in range(10_000):
                await call.write(bytes(100_000))
                self.seen["flood"] += 1
        finally:
            self.seen["flood ended"] += 1


@pytest.fixture
async def probe() -> Any:
    probe = Probe()
    yield probe
    probe.held.clear()


async def test_half_received_messages_above_the_budget_of_a_connection(lab: Any, probe: Probe) -> None:
    """The youngest are refused; the oldest becomes whole."""
    client = lab.client(lab.door(probe.table, buffered_request_bytes_max=100_000)).open()
    client.feed(h2.window_update(0, MIB))
    message = h2.grpc_message(bytes(60_000))
    for stream in (1, 3, 5):
        client.feed(client.headers(stream, ECHO) + h2.data_frames(stream, message[:40_000], end=False))
    client.read()
    assert {stream: answer.status for stream, answer in client.answers.items()} == {5: 8}
    client.feed(h2.data_frames(1, message[40_000:]) + h2.data_frames(3, message[40_000:]))
    client.read()
    assert [len(client.answers[stream].data) for stream in (1, 3)] == [60_005, 60_005]


async def test_half_received_messages_above_the_budget_of_all(lab: Any, probe: Probe) -> None:
    door = lab.door(probe.table, buffered_total_bytes_max=100_000)
    clients = [lab.client(door).open() for _ in range(3)]
    for client in clients:
        client.feed(client.headers(1, ECHO) + h2.data_frames(1, h2.grpc_message(bytes(60_000))[:40_000], end=False))
        client.read()
    assert [{s: a.status for s, a in client.answers.items()} for client in clients] == [{}, {}, {1: 8}]
    clients[0].lose()
    clients[2].feed(clients[2].headers(3, ECHO) + h2.data_frames(3, h2.grpc_message(bytes(60_000))[:40_000], end=False))
    assert 3 not in clients[2].read().answers


async def test_messages_a_handler_does_not_take_close_the_window(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table)).open()
    client.feed(client.headers(1, CHAT))
    piece = h2.data_frames(1, h2.grpc_message(bytes(10_000)), end=False)
    for _ in range(100):
        client.feed(piece)
    await lab.turns()
    withheld = client.read().granted.get(1, 0)
    assert withheld < 600_000, "window is given back for messages nobody takes"
    probe.go.set()
    await until(lambda: probe.seen["chat"] == 100, "all messages")
    await lab.turns()
    assert client.read().granted[1] > withheld


async def test_untaken_messages_count_for_the_window_of_the_connection(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table, buffered_request_bytes_max=4 * MIB)).open()
    opening = client.read().granted[0]
    streams = range(1, 41, 2)
    for stream in streams:
        client.feed(client.headers(stream, CHAT))
        client.feed(h2.data_frames(stream, h2.grpc_message(bytes(500_000)), end=False))
    assert client.read().granted[0] == opening, "20 x 500 kB wait for their handlers, 4 MiB may"
    probe.go.set()
    await until(lambda: probe.seen["chat"] == 20, "all messages")
    await lab.turns()
    assert client.read().granted[0] > opening + 8 * MIB


async def test_unread_answers_hold_further_calls_back(lab: Any, probe: Probe) -> None:
    """The client's window is shut: what is answered stays here, and no more of it is made."""
    client = lab.client(lab.door(probe.table, unsent_connection_bytes_max=3 * MIB))
    client.feed(h2.PREFACE + h2.settings((h2.INITIAL_WINDOW_SIZE, 0)))
    for stream in range(1, 21, 2):
        client.feed(client.call(stream, BIG, b"1000000"))
    assert probe.seen["big"] == 4
    client.feed(h2.settings((h2.INITIAL_WINDOW_SIZE, 2 * MIB)) + h2.window_update(0, 64 * MIB))
    await until(lambda: probe.seen["big"] == 10, "the calls that were held back")
    await lab.turns()
    client.feed(h2.ping())
    await until(lambda: all(a.ended for a in client.read().answers.values()), "all answers")
    assert [len(answer.data) for answer in client.answers.values()] == [1_000_005] * 10


async def test_stalled_transport_stops_reading_and_writing(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table)).open()
    client.protocol.pause_writing()
    assert not client.transport.reading
    client.feed(client.call(1, ECHO, b"x"))
    assert 1 not in client.read().answers
    client.protocol.resume_writing()
    assert client.transport.reading
    assert client.read().answers[1].ended


async def test_writer_waits_for_its_stream(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table, unsent_stream_bytes_max=500_000)).open()
    client.feed(client.call(1, FLOOD))
    await lab.turns()
    assert 5 <= probe.seen["flood"] <= 6, "64 KiB of window, 500 kB of budget, 100 kB messages"
    client.feed(h2.window_update(1, 250_000) + h2.window_update(0, 2_000_000))
    await lab.turns()
    assert probe.seen["flood"] in (7, 8, 9)
    client.feed(h2.rst_stream(1))
    await until(lambda: probe.seen["flood ended"] == 1, "the end of the cancelled handler")


async def test_writers_wait_for_a_stalled_transport(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table))
    client.feed(h2.PREFACE + h2.settings((h2.INITIAL_WINDOW_SIZE, 1 << 30)) + h2.window_update(0, 1 << 30))
    client.protocol.pause_writing()
    client.feed(client.call(1, FLOOD))
    await lab.turns()
    assert probe.seen["flood"] == 0
    client.protocol.resume_writing()
    await until(lambda: probe.seen["flood"] > 20, "messages after the stall")


async def test_one_turn_writes_one_mebibyte_of_a_connection(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table))
    client.feed(h2.PREFACE + h2.settings((h2.INITIAL_WINDOW_SIZE, 1 << 30)) + h2.window_update(0, 1 << 30))
    client.feed(client.call(1, BIG, b"5000000"))
    assert MIB <= sum(map(len, client.transport.writes)) < 2 * MIB
    await until(lambda: client.read().answers[1].ended, "the rest, turn by turn")


async def test_what_a_transport_still_holds_is_not_written_over(lab: Any, probe: Probe) -> None:
    """Large outputs are written from buffers that the door uses again, but only when the transport has let go."""
    door = lab.door(probe.table)
    clients = [lab.client(door).open() for _ in range(24)]  # more than there are such buffers
    for client in clients:
        client.feed(h2.settings((h2.INITIAL_WINDOW_SIZE, 1 << 30)) + h2.window_update(0, 1 << 30))
    for turn in range(3):
        sent = [bytes([turn, number]) * 50_000 for number in range(len(clients))]
        for client, message in zip(clients, sent, strict=True):
            client.feed(client.call(2 * turn + 1, ECHO, message))
        for client, message in zip(clients, sent, strict=True):
            assert client.read().answers[2 * turn + 1].data == h2.grpc_message(message)
        for client in clients[::2]:
            client.transport.writes[:] = [b""] * len(client.transport.writes)


@pytest.mark.parametrize("what", ["pings", "resets"])
async def test_storms_end_the_connection(lab: Any, probe: Probe, what: str) -> None:
    client = lab.client(lab.door(probe.table, pings_per_s_max=10, resets_per_s_max=10)).open()

    def storm(start: int, count: int) -> bytes:
        if what == "pings":
            return b"".join(h2.ping(b"%08d" % number) for number in range(count))
        streams = range(start, start + 2 * count, 2)
        return b"".join(client.headers(stream, HOLD) + h2.rst_stream(stream) for stream in streams)

    client.feed(storm(1, 40))
    assert client.read().goaways == []
    client.feed(storm(101, 40))
    assert [code for _, code in client.read().goaways] == [h2.ENHANCE_YOUR_CALM]
    assert client.transport.ending == "closed"


@pytest.mark.parametrize("why", ["deadline in the same read", "deadline passed", "answered"])
async def test_resets_that_an_honest_client_sends_are_cheap(lab: Any, probe: Probe, why: str) -> None:
    """Deadlines that pass under load bring a reset for each call: 20 of them count as one."""
    client = lab.client(lab.door(probe.table, resets_per_s_max=10)).open()
    burst = 5 * 10 * 20

    async def storm(start: int, count: int) -> None:
        for first in range(start, start + 2 * count, 2 * 50):
            streams = range(first, first + 2 * 50, 2)
            if why == "answered":  # headers are out, the answer waits for a window of the stream that never opens
                calls = [client.call(stream, ECHO, b"x") for stream in streams]
            else:
                calls = [client.headers(stream, HOLD, ("grpc-timeout", "15m")) for stream in streams]
            resets = [h2.rst_stream(stream) for stream in streams]
            if why == "deadline in the same read":
                client.feed(b"".join(call + reset for call, reset in zip(calls, resets, strict=True)))
                continue
            client.feed(b"".join(calls))
            client.feed(b"".join(resets))

    client.feed(h2.settings((h2.INITIAL_WINDOW_SIZE, 0)))
    await storm(1, burst)
    assert client.read().goaways == []
    await storm(1 + 2 * burst, burst)
    assert [code for _, code in client.read().goaways] == [h2.ENHANCE_YOUR_CALM]


async def test_deadline_far_away_excuses_no_reset(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table, resets_per_s_max=10)).open()
    streams = range(1, 201, 2)
    client.feed(b"".join(client.headers(stream, HOLD, ("grpc-timeout", "3S")) for stream in streams))
    client.feed(b"".join(h2.rst_stream(stream) for stream in streams))
    assert [code for _, code in client.read().goaways] == [h2.ENHANCE_YOUR_CALM]


async def test_pings_between_answers_are_free(lab: Any, probe: Probe) -> None:
    """grpc-go and grpc-java measure bandwidth with a ping for each round trip."""
    client = lab.client(lab.door(probe.table, pings_per_s_max=10)).open()
    for number in range(300):
        client.feed(client.call(2 * number + 1, ECHO, b"x") + h2.ping())
    assert client.read().goaways == []
    client.feed(h2.ping() * 100)
    assert [code for _, code in client.read().goaways] == [h2.ENHANCE_YOUR_CALM]


async def test_header_values_may_be_spaces(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table)).open()
    client.feed(client.call(1, HOLD, b"", ("k", " "), ("l", " v "), ("m", "")))
    assert [probe.held[0].header(key) for key in "klm"] == [" ", " v ", ""]


async def test_large_headers_are_answered(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table, header_bytes_max=1_000)).open()
    client.feed(client.call(1, ECHO, b"x", ("k", "v" * 1_000)) + client.call(3, ECHO, b"y", ("k", "v" * 500)))
    client.read()
    assert [client.answers[stream].status for stream in (1, 3)] == [8, 0]


async def test_handshake_time(lab: Any, probe: Probe) -> None:
    door = lab.door(probe.table, handshake_s=0.05)
    silent, half, whole = (lab.client(door) for _ in range(3))
    half.feed(h2.PREFACE)
    whole.open()
    await until(lambda: door.sweep() or silent.transport.ending == "aborted", "the end of the handshake time")
    assert (half.transport.ending, whole.transport.ending) == ("aborted", None)


async def test_idle_time(lab: Any, probe: Probe) -> None:
    door = lab.door(probe.table, idle_s=0.05)
    idle, working = lab.client(door).open(), lab.client(door).open()
    working.feed(working.call(1, HOLD))
    await until(lambda: door.sweep() or idle.transport.ending is not None, "the end of the idle time")
    assert idle.transport.ending == "closed"
    assert idle.read().goaways == [(0, h2.NO_ERROR)]
    assert working.transport.ending is None


async def test_keepalive(lab: Any, probe: Probe) -> None:
    door = lab.door(probe.table, keepalive_s=0.05)
    dead, alive = lab.client(door).open(), lab.client(door).open()
    for client in (dead, alive):
        client.feed(client.call(1, HOLD))

    def passed() -> bool:
        door.sweep()
        pings, alive.pings = alive.read().pings, []
        for payload in pings:
            alive.feed(h2.frame(h2.PING, h2.ACK, 0, payload))
        return dead.transport.ending == "aborted"

    await until(passed, "the end of the connection that answers no pings")
    assert len(dead.read().pings) == 1
    assert alive.transport.ending is None


async def test_drain_in_two_steps(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table)).open()
    client.feed(client.call(1, HOLD))
    client.protocol.begin_drain()
    await lab.turns()
    assert client.read().goaways == [(2**31 - 1, h2.NO_ERROR)]
    client.feed(client.call(3, HOLD))  # was on its way
    client.feed(h2.frame(h2.PING, h2.ACK, 0, client.pings[0]))
    await lab.turns()
    assert client.read().goaways[1:] == [(3, h2.NO_ERROR)]
    client.feed(client.call(5, HOLD))
    assert len(probe.held) == 2
    assert client.transport.ending is None
    for call in probe.held:
        call.answer(b"done")
    await lab.turns()
    assert [client.read().answers[stream].data[5:] for stream in (1, 3)] == [b"done", b"done"]
    assert client.transport.ending == "closed"


async def test_cut_ends_calls_unavailable(lab: Any, probe: Probe) -> None:
    client = lab.client(lab.door(probe.table)).open()
    client.feed(client.call(1, HOLD) + client.headers(3, CHAT))
    await lab.turns()
    client.protocol.cut()
    await lab.turns()
    assert [client.read().answers[stream].status for stream in (1, 3)] == [14, 14]
    assert client.transport.ending == "closed"
