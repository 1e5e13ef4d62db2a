"""What to do with a store as it is found: where to start scanning, and what a stop of the scan means. Pure: values in,
decisions out; `opening.py` does what is decided here.

The log is the truth; queues and index are derived from it. Two things decide what happens at the first bytes that are no
record: why they are none, and whether the log was known to be on disk there (`flushed` of the checkpoint).

    reason              below flushed    at or above flushed, later files    at or above flushed, last file
    ------------------  ---------------  ----------------------------------  ------------------------------
    blank (marker)      NEXT_FILE        NEXT_FILE                           END
    end (file full)     NEXT_FILE        NEXT_FILE                           END
    zero (unwritten)    DAMAGED          CUT                                 END
    anything else       DAMAGED          CUT                                 CUT

A marker or full file at the end of the last file simply is the end of the log: the next record starts a new file. DAMAGED is
never a reason to delete: the log is kept as it is, the range up to the next sound record (or the next file) is reported and
passed over, and what is in it is never served.
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


class Verdict(Enum):
    NEXT_FILE = "go on in the next file"
    END = "the log ends here"
    CUT = "a torn tail: cut here"
    DAMAGED = "bytes known to be on disk are unreadable: keep them, go on behind them"


def judge_stop(stop: Stop, below_flushed: bool, last_file: bool) -> Verdict:
    """The table above."""
    if stop in (Stop.BLANK, Stop.END):
        # A marker is no proof that later files hold anything, and none is needed: an empty next file stops at its start.
        return Verdict.END if last_file and not below_flushed else Verdict.NEXT_FILE
    if below_flushed:
        return Verdict.DAMAGED
    if stop is Stop.ZERO:
        return Verdict.END if last_file else Verdict.CUT
    return Verdict.CUT


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """First record of a commit-log file: offset stored in it and store time; None fields when the file begins with none."""

    start: int
    physical_offset: int | None
    store_ms: int | None


def choose_start(files: Sequence[FirstRecord], *, clean: bool, queues_end: int, index_from: int, replay_from_ms: int) -> int:
    """Index of the file to start scanning at: the newest that no derived file can lack anything below; file 0 is the floor.

    clean: queues and index were complete when the process stopped; then what they cover (`queues_end`, `index_from`: physical
    offsets) decides (5.3). Otherwise the checkpoint's time decides (5.5), and the index may reach further back.
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
            f"opened {how}: log ends at {self.end}{cut}; {self.queues} queues; scanned {self.records_scanned} records from "
            f"{self.scanned_from}, rebuilt {self.units_rebuilt} units and {self.keys_rebuilt} keys in {self.duration_ms} ms"
        )
