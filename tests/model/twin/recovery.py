"""What a start must make of a commit log's bytes, as a pure function of them (store-and-semantics.md 2.1 and 5).

Apache cuts the log at the first bad byte. Our rule (architecture.md 3, replication-and-reliability.md 3.3) is
stricter: the first bad place is a *torn tail*, and is cut, only when no sound record with its own offset lies beyond
it; otherwise it is *damage*, the log stays whole, and every sound record on both sides of it is still served.
"""

import struct
from dataclasses import dataclass

from twin.records import MAGIC_V1, MAGIC_V2, BadRecordError, Record, decode, is_blank

_MAGICS = [struct.pack(">I", magic) for magic in (MAGIC_V1, MAGIC_V2)]


@dataclass(frozen=True)
class Outcome:
    """`end`: where the next append goes. `damage`: half-open byte ranges that hold no sound record and are kept."""

    records: list[Record]
    damage: list[tuple[int, int]]
    end: int


def scan_file(start: int, data: bytes) -> tuple[list[Record], int, bool]:
    """(sound records from the first byte on, offset of the first bad byte, whether the file ends in a marker)."""
    records = []
    at = 0
    while at < len(data):
        if is_blank(data, at):
            return records, start + len(data), True
        record = sound_record(data, at, start)
        if record is None:
            return records, start + at, False
        records.append(record)
        at += record.size
    return records, start + at, True


def next_sound(files: dict[int, bytes], after: int) -> int | None:
    """Offset of the first sound record beyond `after` that names its own place, trying every byte of every file."""
    for start in sorted(files):
        data = files[start]
        places = sorted(at - 4 for magic in _MAGICS for at in _find_all(data, magic))
        for at in places:
            if at >= 0 and start + at > after and sound_record(data, at, start) is not None:
                return start + at
    return None


def _find_all(data: bytes, needle: bytes) -> list[int]:
    found, at = [], data.find(needle)
    while at >= 0:
        found.append(at)
        at = data.find(needle, at + 1)
    return found


def sound_record(data: bytes, at: int, start: int) -> Record | None:
    """The record at byte `at` of the file that starts at `start`, when nothing speaks against it.

    Besides the format's own checks it must name its own place, its topic must be able to name a folder, and it must not
    end in a zero byte: no writer ends one so, and no checksum covers the end of a record of which the disk got all but
    the last bytes.
    """
    try:
        record = decode(data, at)
    except BadRecordError:
        return None
    torn = record.properties.endswith(b"\0") or record.topic.endswith("\0")
    folder = record.topic not in ("", ".", "..") and not {"/", "\0"} & set(record.topic)
    return record if record.physical_offset == start + at and folder and not torn else None


def recover(files: dict[int, bytes]) -> Outcome:
    """The whole log: start offset -> bytes of each file."""
    records: list[Record] = []
    damage: list[tuple[int, int]] = []
    end = min(files, default=0)
    starts = sorted(files)
    position = end
    while True:
        start = max((one for one in starts if one <= position), default=None)
        if start is None or position >= start + len(files[start]):
            return Outcome(records, damage, position)
        found, stop, whole = _scan_from(start, files[start], position)
        records += found
        if whole and start + len(files[start]) in files:
            position = start + len(files[start])
            continue
        resume = next_sound(files, stop)
        if resume is None:
            return Outcome(records, damage, stop if not whole else start + len(files[start]))
        damage.append((stop, resume))
        position = resume


def _scan_from(start: int, data: bytes, position: int) -> tuple[list[Record], int, bool]:
    return scan_file(position, data[position - start :])
