"""The native door without sockets: a transport that keeps what is written, and a client that makes and reads frames."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import hpack
import pytest
from door import wire as h2

from razzo.door._door import Door, DoorProtocol, streams_alive
from razzo.door.methods import MethodTable
from razzo.door.observers import Observers
from razzo.door.server import DoorLimits


class Transport(asyncio.Transport):
    """Keeps what is written. `stall()` does what a transport does whose peer has stopped reading."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000)})
        self.writes: list[bytes | memoryview] = []
        self.reading = True
        self.ending: str | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def write(self, data: Any) -> None:
        assert self.ending is None, "written to after its end"
        self.writes.append(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.ending = self.ending or "closed"

    def abort(self) -> None:
        self.ending = "aborted"


@dataclass
class Answer:
    headers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers["grpc-status"])


class Client:
    """One connection of a door, driven by hand."""

    def __init__(self, door: Door) -> None:
        self.transport = Transport()
        self.protocol = door.protocol(False)
        self.protocol.connection_made(self.transport)
        self.answers: dict[int, Answer] = {}
        self.goaways: list[tuple[int, int]] = []
        self.pings: list[bytes] = []
        self.granted: dict[int, int] = {}
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._taken = 0
        self._rest = b""

    def open(self) -> Client:
        self.feed(h2.PREFACE + h2.settings() + h2.frame(h2.SETTINGS, h2.ACK, 0))
        return self

    def feed(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def headers(self, stream: int, path: str, *extra: tuple[str, str], flags: int = h2.END_HEADERS) -> bytes:
        return h2.frame(h2.HEADERS, flags, stream, self._encoder.encode(h2.grpc_headers(path, extra)))

    def call(self, stream: int, path: str, message: bytes = b"", *extra: tuple[str, str]) -> bytes:
        return self.headers(stream, path, *extra) + h2.data_frames(stream, h2.grpc_message(message))

    def lose(self) -> None:
        self.protocol.connection_lost(None)

    def read(self) -> Client:
        """Takes in everything the door has written so far."""
        data = self._rest + b"".join(self.transport.writes[self._taken :])
        self._taken = len(self.transport.writes)
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            size = int.from_bytes(data[:3], "big")
            self._frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size])
            data = data[9 + size :]
        self._rest = data
        return self

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        answer = self.answers.setdefault(stream, Answer()) if stream and kind != h2.WINDOW_UPDATE else Answer()
        if kind == h2.HEADERS:
            answer.headers.update((str(k), str(v)) for k, v in self._decoder.decode(payload))
        elif kind == h2.DATA:
            answer.data += payload
        elif kind == h2.RST_STREAM:
            answer.reset = int.from_bytes(payload, "big")
        elif kind == h2.GOAWAY:
            self.goaways.append((int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big")))
        elif kind == h2.PING and not flags & h2.ACK:
            self.pings.append(payload)
        elif kind == h2.WINDOW_UPDATE:
            self.granted[stream] = self.granted.get(stream, 0) + int.from_bytes(payload, "big")
        if kind in (h2.HEADERS, h2.DATA) and flags & h2.END_STREAM:
            answer.ended = True


class Lab:
    """Makes doors and clients for one test."""

    def __init__(self) -> None:
        self.doors: list[Door] = []

    def door(self, table: MethodTable, observers: Observers | None = None, **limits: Any) -> Door:
        self.doors.append(Door(asyncio.get_running_loop(), table, DoorLimits(**limits), observers or Observers()))
        return self.doors[-1]

    def client(self, door: Door) -> Client:
        """A client whose preface the door has not seen yet."""
        return Client(door)

    async def turns(self) -> None:
        """Lets the loop run through what is ready."""
        for _ in range(8):
            await asyncio.sleep(0)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    """At the end every connection is lost."""
    lab = Lab()
    yield lab
    for door in lab.doors:
        for connection in list(door.connections):
            assert isinstance(connection, DoorProtocol)
            connection.connection_lost(None)
        await asyncio.wait_for(door.no_calls(), 5)


@pytest.fixture(autouse=True)
def no_stream_is_left() -> Iterator[None]:
    gc.collect()
    before = streams_alive()
    yield
    gc.collect()
    assert streams_alive() == before
