"""The same bytes in other pieces mean the same; wrong bytes end calls or connections, never the process.

Run with RAZZO_FUZZ_ROUNDS for more rounds, and on a build with sanitizers (``RAZZO_SANITIZE=1``, see
services/door/setup.py) to see what C does on the way.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from door import wire as h2

from razzo.door.methods import BatchCall, Call, GrpcStatus, MethodTable, RpcError

ROUNDS = int(os.environ.get("RAZZO_FUZZ_ROUNDS", "60"))
HELD_MAX = 16
PATHS = [f"/t.S/{name}" for name in ("Batch", "Late", "Unary", "Stream", "Bidi", "Unknown")]


class Echo:
    """Answers every kind of call with what it was asked; `Late` keeps some calls for long."""

    def __init__(self) -> None:
        self.held: list[BatchCall] = []
        self.table = MethodTable()
        self.table.unary_batch(PATHS[0], self.batch)
        self.table.unary_batch(PATHS[1], self.late)
        self.table.unary(PATHS[2], self.unary)
        self.table.server_stream(PATHS[3], self.stream)
        self.table.bidi(PATHS[4], self.bidi)

    def batch(self, calls: list[BatchCall]) -> None:
        for call in calls:
            call.metadata()
            call.answer(call.request)

    def late(self, calls: list[BatchCall]) -> None:
        self.held += calls
        while len(self.held) > HELD_MAX:
            call = self.held.pop(0)
            call.answer(call.request)

    def release(self) -> None:
        for call in self.held:
            call.answer(call.request)
        self.held.clear()

    async def unary(self, request: bytes, call: Call) -> bytes:
        if request.startswith(b"!"):
            raise RpcError(GrpcStatus.NOT_FOUND, "n\N{LATIN SMALL LETTER O WITH DIAERESIS}t%found")
        await asyncio.sleep(0)
        return request

    async def stream(self, request: bytes, call: Call) -> None:
        for at in range(0, len(request), 100):
            await call.write(request[at : at + 100])

    async def bidi(self, call: Call) -> None:
        await call.send_initial_metadata((("k", "v"),))
        async for message in call:
            await call.write(message)


@pytest.fixture
async def echo() -> Any:
    echo = Echo()
    yield echo
    echo.release()


def conversation(client: Any, random_: random.Random) -> list[bytes]:
    """Frames of a dozen calls of every kind, some with several messages, padding, late resets, pings between."""
    frames = [h2.PREFACE + h2.settings() + h2.frame(h2.SETTINGS, h2.ACK, 0), h2.window_update(0, 1 << 24)]
    for number in range(12):
        stream = 2 * number + 1
        path = random_.choice(PATHS)
        message = random_.randbytes(random_.choice((0, 1, 80, 3_000, 40_000)))
        extra = [("x-data-bin", "AAEC"), ("grpc-timeout", "20S")][: random_.randrange(3)]
        frames.append(client.headers(stream, path, *extra))
        if path == PATHS[4]:
            frames += [h2.data_frames(stream, h2.grpc_message(message), end=False)] * random_.randrange(1, 4)
            frames.append(h2.frame(h2.DATA, h2.END_STREAM, stream))
        else:
            frames.append(h2.data_frames(stream, h2.grpc_message(message)))
        if random_.random() < 0.2:
            frames.append(h2.ping())
    return frames


async def settled(client: Any, turns: int = 60) -> dict[int, tuple[dict[str, str], bytes, bool]]:
    for _ in range(turns):
        await asyncio.sleep(0)
    client.read()
    return {stream: (answer.headers, answer.data, answer.ended) for stream, answer in client.answers.items()}


@pytest.mark.parametrize("seed", range(6))
async def test_pieces_do_not_matter(lab: Any, echo: Echo, seed: int) -> None:
    """A conversation in one read, byte by byte at its start, and in random pieces: the same answers."""
    door = lab.door(echo.table)
    outcomes = []
    for way in range(4):
        client = lab.client(door)
        data = b"".join(conversation(client, random.Random(seed)))
        cuts = random.Random(way)
        at = 0
        while at < len(data):
            size = len(data) if way == 0 else 1 if way == 1 and at < 3_000 else cuts.randrange(1, 20_000)
            client.feed(data[at : at + size])
            at += size
        echo.release()
        outcomes.append(await settled(client))
        assert client.goaways == []
        assert all(ended for _, _, ended in outcomes[-1].values())
        client.lose()
    assert len(outcomes[0]) == 12
    assert outcomes[1:] == outcomes[:1] * 3


def spoiled(frames: list[bytes], random_: random.Random) -> bytes:
    """Frames dropped, doubled, swapped, cut short; then some bits of what is left flipped."""
    frames = list(frames)
    for _ in range(random_.randrange(3)):
        at, other = random_.randrange(1, len(frames)), random_.randrange(1, len(frames))
        action = random_.randrange(4)
        if action == 0:
            del frames[at]
        elif action == 1:
            frames.insert(other, frames[at])
        elif action == 2:
            frames[at], frames[other] = frames[other], frames[at]
        else:
            frames[at] = frames[at][: random_.randrange(len(frames[at]) + 1)]
    if random_.random() < 0.5:
        frames.insert(random_.randrange(1, len(frames)), h2.rst_stream(random_.randrange(1, 24)))
    data = bytearray(b"".join(frames))
    for _ in range(random_.choice((0, 1, 1, 3, 10))):
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    return bytes(data)


async def test_wrong_bytes_end_nothing_but_their_connection(lab: Any, echo: Echo) -> None:
    door = lab.door(echo.table, request_bytes_max=100_000, buffered_request_bytes_max=150_000)
    witness = lab.client(door).open()
    for seed in range(ROUNDS):
        random_ = random.Random(seed)
        client = lab.client(door)
        data = spoiled(conversation(client, random_), random_)
        at = 0
        while at < len(data) and client.transport.ending is None:
            size = random_.choice((1, 9, 100, 10_000, len(data)))
            client.feed(data[at : at + size])
            at += size
            if random_.random() < 0.2:
                await asyncio.sleep(0)
        if random_.random() < 0.5:
            for _ in range(5):
                await asyncio.sleep(0)
        client.lose()
        echo.release()
    witness.feed(witness.call(1, PATHS[0], b"still here"))
    assert witness.read().answers[1].data[5:] == b"still here"
    for _ in range(30):
        await asyncio.sleep(0)
    assert all(counts.in_flight == 0 for counts in door.counts().values())
    assert len(door.connections) == 1
