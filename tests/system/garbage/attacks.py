"""What is thrown at every port, by name. All of it is made from a seed and bounded in size."""

from __future__ import annotations

import random

from garbage import http2_bytes as h2

from razzo.protocol import methods

SEED = 20266
MIB = 1 << 20


def random_bytes(size: int) -> bytes:
    return random.Random(SEED + size).randbytes(size)


def _truncated() -> dict[str, bytes]:
    whole = h2.opening() + h2.call(methods.QUERY_ROUTE, h2.prefixed(b"\x0a\x03abc"))
    cuts = sorted(random.Random(SEED).sample(range(1, len(whole)), 12))
    return {f"a call cut after {cut} bytes": whole[:cut] for cut in cuts}


def _frames() -> dict[str, bytes]:
    opening = h2.opening()
    many_settings = h2.frame(h2.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x01" * 2_000)
    return {
        "a frame that says 16 MiB": opening + h2.frame(h2.DATA, 0, 1, b"x" * 100, length=0xFFFFFF),
        "a frame of an unknown kind": opening + h2.frame(0xEE, 0xFF, 0x7FFFFFFF, random_bytes(64)),
        "SETTINGS of 5 bytes": h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"12345"),
        "SETTINGS with an impossible window": h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff"),
        "2,000 settings in one frame": h2.PREFACE + many_settings,
        "DATA on stream 0": opening + h2.frame(h2.DATA, 0, 0, b"x"),
        "DATA on a stream that is not open": opening + h2.frame(h2.DATA, 0, 77, b"x"),
        "HEADERS on an even stream": opening + h2.headers(2, h2.call_headers(methods.HEARTBEAT), h2.END_STREAM),
        "CONTINUATION without HEADERS": opening + h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, b"abc"),
        "headers that are no HPACK": opening + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff" * 64),
        "a window update of nothing": opening + h2.frame(h2.WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x00"),
        "a window that overflows": opening + h2.frame(h2.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
        "a push from a client": opening + h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, b"\x00\x00\x00\x02"),
        "5,000 pings": opening + h2.frame(h2.PING, 0, 0, b"12345678") * 5_000,
        "1,000 calls opened and reset": opening + _opened_and_reset(1_000),
        "1,000 calls opened and left": opening + _opened(1_000),
    }


def _opened(count: int) -> bytes:
    block = h2.call_headers(methods.SEND_MESSAGE)
    return b"".join(h2.headers(2 * i + 1, block) for i in range(count))


def _opened_and_reset(count: int) -> bytes:
    block = h2.call_headers(methods.SEND_MESSAGE)
    reset = (8).to_bytes(4, "big")
    return b"".join(h2.headers(2 * i + 1, block) + h2.frame(h2.RST_STREAM, 0, 2 * i + 1, reset) for i in range(count))


def _headers() -> dict[str, bytes]:
    opening = h2.opening()
    wide = h2.call_headers(methods.SEND_MESSAGE, [("x-wide", "v" * MIB)])
    many = h2.call_headers(methods.SEND_MESSAGE, [(f"x-{i}", "v" * 1_000) for i in range(1_024)])
    binary = h2.call_headers(methods.SEND_MESSAGE, [("x-mq-client-id", bytes(range(1, 32)))])
    return {
        "one header of 1 MiB": opening + h2.headers(1, wide, h2.END_STREAM),
        "1,024 headers of 1 KiB": opening + h2.headers(1, many, h2.END_STREAM),
        "control characters in a header": opening + h2.headers(1, binary, h2.END_STREAM),
        "no path": opening + h2.headers(1, h2.literal(":method", "POST"), h2.END_STREAM),
        "an unknown path": opening + h2.call("/no.such.Service/Method", h2.prefixed(b"")),
        "a path of 60,000 characters": opening + h2.call("/" + "p" * 60_000, h2.prefixed(b"")),
    }


def _messages() -> dict[str, bytes]:
    """gRPC messages whose own framing is wrong."""
    opening = h2.opening()

    def send(message: bytes) -> bytes:
        return opening + h2.call(methods.SEND_MESSAGE, message)

    return {
        "a message that says 4 GiB": send(h2.prefixed(b"x" * 100, length=0xFFFFFFFF)),
        "a message shorter than it says": send(h2.prefixed(b"x" * 100, length=101)),
        "a message longer than it says": send(h2.prefixed(b"x" * 100, length=3)),
        "half a message prefix": send(b"\x00\x00\x00"),
        "no message": send(b""),
        "two messages in a unary call": send(h2.prefixed(b"") * 2),
        "a compressed message without encoding": send(h2.prefixed(b"x" * 100, compressed=1)),
        "an impossible compression flag": send(h2.prefixed(b"x" * 100, compressed=0x77)),
        "protobuf that is none": send(h2.prefixed(b"\xff" * 1_000)),
    }


def _other_protocols() -> dict[str, bytes]:
    hello = bytes.fromhex("16030100c8010000c40303") + random_bytes(197)
    return {
        "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "a TLS hello that is none": hello,
        "a TLS record of 64 KiB": b"\x16\x03\x01\xff\xff" + random_bytes(1_000),
        "RocketMQ remoting": (1 << 20).to_bytes(4, "big") + (5).to_bytes(4, "big") + b'{"code":310}',
        "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    }


ATTACKS: dict[str, bytes] = {
    **{f"{size} random bytes": random_bytes(size) for size in (1, 9, 24, 1_000, 65_536, MIB)},
    **{f"{size} random bytes after the preface": h2.opening() + random_bytes(size) for size in (9, 1_000, 65_536)},
    "nothing": b"",
    "half a preface": h2.PREFACE[:11],
    **_truncated(),
    **_frames(),
    **_headers(),
    **_messages(),
    **_other_protocols(),
}
