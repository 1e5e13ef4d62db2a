"""HTTP/2 by hand (RFC 9113), so that a test can send what no library would.

A frame is `length u24 | type u8 | flags u8 | stream u32 | payload`; headers are HPACK literals without indexing
(RFC 7541 6.2.2) and without Huffman coding.
"""

from __future__ import annotations

from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16_384

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 0x1, 0x4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """One frame; `length` is what its head says, the payload's own when it is not given."""
    said = len(payload) if length is None else length
    return said.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def settings() -> bytes:
    return frame(SETTINGS, 0, 0)


def opening() -> bytes:
    """What a client starts with."""
    return PREFACE + settings()


def literal(name: str, value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return b"\x00" + _length(len(name)) + name.encode() + _length(len(encoded)) + encoded


def _length(number: int) -> bytes:
    """An HPACK integer with a 7-bit prefix."""
    if number < 127:
        return bytes([number])
    out = bytearray([127])
    number -= 127
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def call_headers(path: str, extra: Iterable[tuple[str, str | bytes]] = ()) -> bytes:
    """The header block of a gRPC call."""
    fields: list[tuple[str, str | bytes]] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "garbage"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("x-mq-client-id", "garbage"),
        *extra,
    ]
    return b"".join(literal(name, value) for name, value in fields)


def headers(stream: int, block: bytes, flags: int = 0) -> bytes:
    """A header block as HEADERS and as many CONTINUATIONs as it needs."""
    parts = [block[i : i + FRAME_BYTES_MAX] for i in range(0, len(block), FRAME_BYTES_MAX)] or [b""]
    out = []
    for number, part in enumerate(parts):
        last = END_HEADERS if number == len(parts) - 1 else 0
        out.append(frame(CONTINUATION if number else HEADERS, last if number else last | flags, stream, part))
    return b"".join(out)


def call(path: str, message: bytes, stream: int = 1) -> bytes:
    """A whole unary call whose data are `message`, length prefix and all."""
    return headers(stream, call_headers(path)) + frame(DATA, END_STREAM, stream, message)


def prefixed(message: bytes, length: int | None = None, compressed: int = 0) -> bytes:
    """gRPC's message framing: flag, length, message."""
    said = len(message) if length is None else length
    return bytes([compressed]) + said.to_bytes(4, "big") + message


def frames(received: bytes) -> list[tuple[int, int, int, bytes]]:
    """(kind, flags, stream, payload) of every whole frame in what a server sent."""
    found = []
    at = 0
    while at + 9 <= len(received):
        length = int.from_bytes(received[at : at + 3], "big")
        stream = int.from_bytes(received[at + 5 : at + 9], "big")
        if at + 9 + length > len(received):
            break
        found.append((received[at + 3], received[at + 4], stream, received[at + 9 : at + 9 + length]))
        at += 9 + length
    return found
