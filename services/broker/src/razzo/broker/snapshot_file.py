"""The snapshot file that bounds the replay of the state topic.

Format (ours): ``magic 8 bytes "RZSNAP01" | crc32 u32 BE of the rest | razzo.v1.StateSnapshot``. Written beside, synced,
renamed, and the directory synced: a cut leaves the old file.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from google.protobuf.message import DecodeError

from razzo.v1 import state_pb2

MAGIC = b"RZSNAP01"
_CRC = struct.Struct(">I")


class SnapshotDamaged(Exception):
    """The file is not a whole snapshot. The state topic is then replayed from its beginning."""


def write(path: Path, snapshot: bytes) -> None:
    """`snapshot` is a serialized StateSnapshot. OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    with open(draft, "wb") as out:
        out.write(MAGIC + _CRC.pack(zlib.crc32(snapshot)))
        out.write(snapshot)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: Path) -> state_pb2.StateSnapshot | None:
    """None when there is no file. SnapshotDamaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    header = len(MAGIC) + _CRC.size
    if len(content) < header or not content.startswith(MAGIC):
        raise SnapshotDamaged(f"{path} is not a snapshot")
    if zlib.crc32(content[header:]) != _CRC.unpack_from(content, len(MAGIC))[0]:
        raise SnapshotDamaged(f"{path} does not match its checksum")
    try:
        return state_pb2.StateSnapshot.FromString(content[header:])
    except DecodeError as error:
        raise SnapshotDamaged(f"{path} cannot be decoded: {error}") from error
