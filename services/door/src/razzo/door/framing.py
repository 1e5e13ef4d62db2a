"""gRPC message framing (PROTOCOL-HTTP2.md, "Length-Prefixed-Message"): flag byte, four bytes of length, message."""

from __future__ import annotations

from collections.abc import Iterator

PREFIX_BYTES = 5


def frame(message: bytes) -> bytes:
    """One message with its prefix, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def split_frames(frames: bytes) -> Iterator[bytes]:
    """The messages of concatenated frames. ValueError when a frame is cut short or marked as compressed."""
    at, end = 0, len(frames)
    while at < end:
        if end - at < PREFIX_BYTES:
            raise ValueError(f"frames end inside a prefix, {end - at} bytes left")
        if frames[at] != 0:
            raise ValueError(f"frame at byte {at} has flag {frames[at]}, only 0 (not compressed) can be written")
        size = int.from_bytes(frames[at + 1 : at + PREFIX_BYTES], "big")
        at += PREFIX_BYTES
        if end - at < size:
            raise ValueError(f"frame of {size} bytes is cut short, {end - at} bytes left")
        yield frames[at : at + size]
        at += size
