"""What to do with a store as it is found: where to start scanning, and what a stop of the scan means. Pure: values in,
decisions out; `opening.py` does what is decided here.

The log is the truth; queues and index are derived from it. Where the scan meets bytes that are no record, three things
decide: why they are none, whether sound records lie behind them, and whether the log was known to be on disk there
(`flushed` of the checkpoint, up to a second old).

    reason              sound records behind    none, below flushed    none, at or above flushed
    ------------------  ----------------------  ---------------------  -------------------------
    blank (marker)      NEXT_FILE               NEXT_FILE              NEXT_FILE, in the last file END
    end (file full)     NEXT_FILE               NEXT_FILE              NEXT_FILE, in the last file END
    zero (unwritten)    DAMAGED                 DAMAGED                END
    anything else       DAMAGED                 DAMAGED                CUT

A damaged record is not a torn tail. A tail is torn when nothing sound follows: it was never acknowledged and is cut.
DAMAGED is never a reason to delete: the log is kept as it is, the range up to the next sound record (or the end of the
file, or of what was on disk) is reported and passed over, and what is in it is never served.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Stop(Enum):
    """Why a scan stopped (names are the kernel's)."""

    BLANK = "blank"
    END = "end"
    ZERO = "zero"
    SHORT = "short"
    MAGIC = "magic"
    CRC = "crc"
    SIZES = "sizes"
    PLACE = "place"
    TORN = "torn"
    TOPIC = "topic"


class Verdict(Enum):
    NEXT_FILE = "go on in the next file"
    END = "the log ends here"
    CUT = "a torn tail: cut here"
    DAMAGED = "bytes known to be on disk are unreadable: keep them, go on behind them"


def judge_stop(stop: Stop, sound_behind: bool, below_flushed: bool, last_file: bool) -> Verdict:
    """The table above."""
    if stop in (Stop.BLANK, Stop.END):
        return Verdict.END if last_file else Verdict.NEXT_FILE
    if sound_behind or below_flushed:
        return Verdict.DAMAGED
    return Verdict.END if stop is Stop.ZERO else Verdict.CUT


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """First record of a commit-log file: offset stored in it and store time; None fields when the file begins with
    none."""

    start: int
    physical_offset: int | None
    store_ms: int | None


def choose_start(
    files: Sequence[FirstRecord], *, clean: bool, queues_end: int, index_from: int, replay_from_ms: int
) -> int:
    """Index of the file to start scanning at: the newest that no derived file can lack anything below; file 0 is the
    floor.

    clean: queues and index were complete when the process stopped; then what they cover (`queues_end`, `index_from`:
    physical offsets) decides (5.3). Otherwise the checkpoint's time decides (5.5), and the index may reach further
    back.
    """
    for position in range(len(files) - 1, 0, -1):
        file = files[position]
        if file.physical_offset is None or file.store_ms is None or file.store_ms <= 0:
            continue
        if file.physical_offset != file.start or file.start > index_from:
            continue
        if file.start <= queues_end if clean else file.store_ms <= replay_from_ms:
            return position
    return 0


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What open() found and did. Offsets are physical, `cut_bytes` what was dropped behind `end`."""

    clean: bool
    scanned_from: int
    end: int
    cut_at: int | None
    cut_reason: str
    records_scanned: int
    bytes_scanned: int
    units_rebuilt: int
    keys_rebuilt: int
    queues: int
    duration_ms: int
    damaged: tuple[tuple[int, int], ...] = ()  # physical ranges [first, last) that hold no readable record

    def describe(self) -> str:
        how = "clean" if self.clean else "after a crash"
        cut = "" if self.cut_at is None else f", cut at {self.cut_at} ({self.cut_reason})"
        if self.damaged:
            cut += f", DAMAGED and passed over: {', '.join(f'{first} to {last}' for first, last in self.damaged)}"
        return (
            f"opened {how}: log ends at {self.end}{cut}; {self.queues} queues; scanned {self.records_scanned} records "
            f"from {self.scanned_from}, rebuilt {self.units_rebuilt} units and {self.keys_rebuilt} keys "
            f"in {self.duration_ms} ms"
        )
