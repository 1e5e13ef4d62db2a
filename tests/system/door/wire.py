"""A raw HTTP/2 client over asyncio: sends whatever frames a test wants, also those that no gRPC client would send.

Frames are written here by hand (RFC 9113, section 4.1); only header compression comes from the ``hpack`` package.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import hpack
from door.probe import PATIENCE_S

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED = 0, 1, 3, 5
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 6, 7, 8, 11

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16_384
"""The largest frame a peer must take without settings that say otherwise."""

Pairs = Iterable[tuple[str, str]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in pairs))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def rst_stream(stream: int, code: int = CANCEL) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def ping(payload: bytes = b"razzotst") -> bytes:
    return frame(PING, 0, 0, payload)


def grpc_message(message: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


def data_frames(stream: int, payload: bytes, *, end: bool = True) -> bytes:
    """The payload in as many DATA frames as it takes."""
    chunks = [payload[at : at + FRAME_BYTES_MAX] for at in range(0, len(payload), FRAME_BYTES_MAX)] or [b""]
    flags = [0] * (len(chunks) - 1) + [END_STREAM if end else 0]
    return b"".join(frame(DATA, flag, stream, chunk) for chunk, flag in zip(chunks, flags, strict=True))


def grpc_headers(
    path: str, extra: Pairs = (), *, content_type: str | None = "application/grpc"
) -> list[tuple[str, str]]:
    base = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "door.test"), ("te", "trailers")]
    if content_type is not None:
        base.append(("content-type", content_type))
    return [*base, *extra]


@dataclass
class Answer:
    """What came back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    frames: list[str] = field(default_factory=list)
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int | None:
        """The gRPC status, wherever it stands."""
        text = self.trailers.get("grpc-status", self.headers.get("grpc-status"))
        return None if text is None else int(text)

    @property
    def message(self) -> str:
        return self.trailers.get("grpc-message", self.headers.get("grpc-message", ""))

    @property
    def over(self) -> bool:
        return self.ended or self.reset is not None


class Wire:
    """One connection. `grant`: give window back for each DATA frame (a client that reads)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, grant: bool) -> None:
        self.reader, self.writer, self.grant = reader, writer, grant
        self.streams: dict[int, Answer] = {}
        self.server_settings: dict[int, int] = {}
        self.settings_acks = 0
        self.pings: list[bytes] = []
        self.pongs: list[bytes] = []
        self.goaway: tuple[int, int, bytes] | None = None
        self.windows: dict[int, int] = {}
        self.closed = False
        self.ack_pings = True
        self.in_the_middle = False  # of a frame that the test sends in pieces: answers of our own wait
        self._waiting_answers: list[bytes] = []
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._block: tuple[int, int, bytes] | None = None
        self._next_stream = 1
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        begin: bytes = PREFACE + settings(),
        grant: bool = True,
    ) -> Self:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname="localhost" if tls else None, limit=1 << 20
        )
        wire = cls(reader, writer, grant=grant)
        writer.write(begin)
        return wire

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._reading.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await self._reading
        self.writer.transport.abort()

    async def send(self, *frames: bytes) -> None:
        """A connection that the server has closed swallows what is sent; tests look at `closed` and `goaway`."""
        if self.writer.transport.is_closing():
            return
        with suppress(OSError):
            self.writer.write(b"".join(frames))
            await self.writer.drain()

    def new_stream(self) -> int:
        stream = self._next_stream
        self._next_stream += 2
        return stream

    def block(self, pairs: Pairs) -> bytes:
        """A header block. Encoded in the order of sending: the server's decoder has the same state."""
        return self._encoder.encode(list(pairs))

    def headers(self, stream: int, pairs: Pairs, *, end: bool = False) -> bytes:
        return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, self.block(pairs))

    def call(self, path: str, message: bytes | None = b"", extra: Pairs = ()) -> tuple[int, bytes]:
        """Stream number and frames of one whole unary call; message None sends no message."""
        stream = self.new_stream()
        payload = b"" if message is None else grpc_message(message)
        return stream, self.headers(stream, grpc_headers(path, extra)) + data_frames(stream, payload)

    async def ask(self, path: str, message: bytes | None = b"", extra: Pairs = ()) -> Answer:
        """One unary call, to its end."""
        stream, frames = self.call(path, message, extra)
        await self.send(frames)
        return await self.answer(stream)

    def stream(self, number: int) -> Answer:
        return self.streams.setdefault(number, Answer())

    async def answer(self, stream: int, patience_s: float = PATIENCE_S) -> Answer:
        """Waits for the end of a stream, by END_STREAM, RST_STREAM or the end of the connection."""
        await self.until(lambda: self.stream(stream).over or self.closed, f"stream {stream} is over", patience_s)
        return self.stream(stream)

    async def until(self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        try:
            async with asyncio.timeout(patience_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {patience_s} s: {what}; {self.describe()}") from None

    async def until_closed(self, patience_s: float = PATIENCE_S) -> None:
        await self.until(lambda: self.closed, "the server closes the connection", patience_s)

    async def alive(self) -> bool:
        """True when the connection still answers a ping."""
        token = b"alive%03d" % (len(self.pongs) % 1000)
        await self.send(ping(token))
        await self.until(lambda: token in self.pongs or self.closed, "a ping is answered")
        return token in self.pongs

    def describe(self) -> str:
        return f"closed={self.closed} goaway={self.goaway} streams={len(self.streams)} pongs={len(self.pongs)}"

    async def send_in_pieces(self, pieces: Iterable[bytes]) -> None:
        """Sends what is whole frames only together, a loop turn between the pieces."""
        self.in_the_middle = True
        for piece in pieces:
            await self.send(piece)
            await asyncio.sleep(0)
        self.in_the_middle = False
        self._answer(b"")

    def _answer(self, data: bytes) -> None:
        self._waiting_answers.append(data)
        if not self.in_the_middle and not self.writer.transport.is_closing():
            self.writer.write(b"".join(self._waiting_answers))
            self._waiting_answers.clear()

    async def _read(self) -> None:
        try:
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF, payload)
                self._changed.set()
        except (asyncio.IncompleteReadError, OSError):
            self.closed = True
            self._changed.set()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (HEADERS, CONTINUATION):
            self._take_headers(kind, flags, stream, payload)
        elif kind == DATA:
            answer = self.stream(stream)
            answer.data += payload
            answer.frames.append("DATA")
            answer.ended |= bool(flags & END_STREAM)
            if self.grant and payload:
                self._answer(window_update(0, len(payload)) + window_update(stream, len(payload)))
        elif kind == RST_STREAM:
            self.stream(stream).reset = int.from_bytes(payload, "big")
        elif kind == SETTINGS and flags & ACK:
            self.settings_acks += 1
        elif kind == SETTINGS:
            pairs = struct.iter_unpack(">HI", payload)
            self.server_settings.update(pairs)
            self._answer(frame(SETTINGS, ACK, 0))
        elif kind == PING and flags & ACK:
            self.pongs.append(payload)
        elif kind == PING:
            self.pings.append(payload)
            if self.ack_pings:
                self._answer(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goaway = (
                int.from_bytes(payload[:4], "big"),
                int.from_bytes(payload[4:8], "big"),
                payload[8:],
            )
        elif kind == WINDOW_UPDATE:
            self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            self._block = (stream, flags, payload)
        else:
            assert self._block is not None
            self._block = (stream, self._block[1], self._block[2] + payload)
        if not flags & END_HEADERS:
            return
        stream, first_flags, block = self._block
        self._block = None
        answer = self.stream(stream)
        pairs = {str(key): str(value) for key, value in self._decoder.decode(block)}
        if answer.headers:
            answer.trailers = pairs
            answer.frames.append("TRAILERS")
        else:
            answer.headers = pairs
            answer.frames.append("HEADERS")
        answer.ended |= bool(first_flags & END_STREAM)
