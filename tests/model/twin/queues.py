"""Consume queues: 20-byte units in files of equal size (store-and-semantics.md 3.1, 3.2)."""

import struct
from typing import NamedTuple

UNIT_BYTES = 20
FILLER_SIZE = 0x7FFFFFFF


class Unit(NamedTuple):
    """One consume-queue unit: where a record is, how long it is, and its tag code."""

    physical_offset: int
    size: int
    tag_code: int


FILLER = Unit(0, FILLER_SIZE, 0)


def encode_unit(unit: Unit) -> bytes:
    return struct.pack(">qiq", *unit)


def encode_batch_unit(unit: Unit, store_ms: int, base_offset: int, count: int) -> bytes:
    """The 46-byte unit of an Apache BatchCQ topic (3.7); the last two numbers are compaction position and reserve."""
    return struct.pack(">qiqqqhii", *unit, store_ms, base_offset, count, -1, 0)


def decode_unit(data: bytes, at: int = 0) -> Unit:
    return Unit(*struct.unpack_from(">qiq", data, at))


def file_name(byte_offset: int) -> str:
    return f"{byte_offset:020d}"


def queue_files(first_offset: int, units: list[Unit], file_units: int) -> dict[str, bytes]:
    """The whole content of one queue: file name -> bytes, unwritten space zero.

    A queue that starts above zero starts inside an aligned file whose units before it are filler (3.2).
    """
    if not units:
        return {}
    start = first_offset - first_offset % file_units
    whole = [FILLER] * (first_offset - start) + units
    files = {}
    for at in range(0, len(whole), file_units):
        data = b"".join(encode_unit(unit) for unit in whole[at : at + file_units])
        files[file_name((start + at) * UNIT_BYTES)] = data.ljust(file_units * UNIT_BYTES, b"\0")
    return files
