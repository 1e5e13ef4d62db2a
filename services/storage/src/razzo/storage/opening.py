"""Doing what recovery.py decides: scan the log, cut a torn tail, rebuild queues and index from it (sections 5.2 to 5.5)."""

import time
from dataclasses import dataclass, field

from razzo.storage._kernel import (
    DONE,
    NEED_INDEX,
    NEED_QUEUE,
    NEED_START,
    NEED_UNITS,
    LogWriter,
    first_record,
    next_sound,
    verify_span,
)
from razzo.storage.checkpoint import Checkpoint
from razzo.storage.commit_log import CommitLog
from razzo.storage.errors import CorruptStore
from razzo.storage.files import FileLayer
from razzo.storage.key_index import KeyIndex
from razzo.storage.queue_table import QueueTable
from razzo.storage.recovery import FirstRecord, RecoveryReport, Stop, Verdict, choose_start, judge_stop
from razzo.storage.segment import Segment
from razzo.storage.settings import StoreSettings


@dataclass
class Scan:
    """Progress of the verification pass."""

    end: int
    last_ms: int = 0
    records: int = 0
    cut_at: int | None = None
    reason: str = ""
    sound: list[tuple[int, int]] = field(default_factory=list)  # physical ranges of verified records
    damaged: list[tuple[int, int]] = field(default_factory=list)


class Opening:
    """Built for one open(), used once."""

    def __init__(self, log: CommitLog, index: KeyIndex, writer: LogWriter, settings: StoreSettings, files: FileLayer,
                 queues: QueueTable) -> None:  # fmt: skip
        self._log = log
        self._index = index
        self._writer = writer
        self._settings = settings
        self._files = files
        self._queues = queues

    def run(self, clean: bool, checkpoint: Checkpoint) -> tuple[RecoveryReport, int]:
        """Returns the report and the store time of the last record."""
        began = time.monotonic()
        # A queue whose files could not be used has to be rebuilt from the beginning of the log.
        queues_end = max((queue.units.end_physical for queue in self._queues.all()), default=-1)
        index_from = self._index_from(clean, checkpoint)
        firsts = self._first_records()
        start = choose_start(
            firsts,
            clean=clean,
            queues_end=-1 if self._queues.incomplete else queues_end,
            index_from=-1 if self._queues.incomplete else index_from,
            replay_from_ms=checkpoint.replay_from_ms,
        )
        begin = self._log.segments[start].start if self._log.segments else 0
        scan = self._verify(start, checkpoint.flushed)
        self._cut(scan.end)
        units_before, keys_before = self._writer.dispatched_units, self._writer.dispatched_keys
        self._log.damaged = scan.damaged
        self._dispatch(scan, index_from)
        self._files.reach("recovery.dispatched")
        for queue in self._queues.all():
            queue.trim(scan.end)
            queue.correct_first(self._log.min_offset)
        report = RecoveryReport(
            clean=clean,
            scanned_from=begin,
            end=scan.end,
            cut_at=scan.cut_at,
            cut_reason=scan.reason if scan.cut_at is not None else "",
            records_scanned=scan.records,
            bytes_scanned=scan.end - begin,
            units_rebuilt=self._writer.dispatched_units - units_before,
            keys_rebuilt=self._writer.dispatched_keys - keys_before,
            queues=len(self._queues.all()),
            duration_ms=int((time.monotonic() - began) * 1000),
            damaged=tuple(scan.damaged),
        )
        return report, scan.last_ms

    def _index_from(self, clean: bool, checkpoint: Checkpoint) -> int:
        """Physical offset from which records may be missing in the index."""
        if not self._settings.index_enabled or (clean and checkpoint.index_ms >= checkpoint.log_ms > 0):
            return 1 << 62
        return self._index.index_files[-1].end_physical if self._index.index_files else self._log.min_offset

    def _first_records(self) -> list[FirstRecord]:
        firsts = []
        for segment in self._log.segments:
            found = first_record(segment.mapped, segment.start)
            offset, store_ms = found if found is not None else (None, None)
            firsts.append(FirstRecord(segment.start, offset, store_ms))
        return firsts

    def _verify(self, start: int, flushed: int) -> Scan:
        """Walk the files from `start`. CorruptStore when files known to be on disk are missing at the end."""
        segments = self._log.segments
        scan = Scan(segments[start].start if segments else 0)
        for position in range(start, len(segments)):
            if not self._verify_file(scan, segments[position], flushed, position == len(segments) - 1):
                later = segments[position + 1 :]
                if scan.reason == Stop.ZERO.value and all(first_record(s.mapped, s.start) is None for s in later):
                    scan.cut_at = None  # nothing is lost with files that were only prepared
                break
        if scan.end < flushed:
            raise CorruptStore(
                f"{self._log.folder}: the log was on disk up to {flushed} but its files end at {scan.end}; nothing was changed. "
                "Restore the missing files, or remove the checkpoint to accept losing them."
            )
        return scan

    def _verify_file(self, scan: Scan, segment: Segment, flushed: int, last_file: bool) -> bool:
        """Verify one file; True to go on with the next one."""
        at = segment.start
        while True:
            begin = at
            scan.reason, at, last_ms, records = verify_span(segment.mapped, segment.start, at,
                                                            self._settings.check_crc_on_recover)  # fmt: skip
            scan.records += records
            scan.last_ms = last_ms or scan.last_ms
            if at > begin:
                scan.sound.append((begin, at))
            verdict = judge_stop(Stop(scan.reason), at < flushed, last_file)
            if verdict is Verdict.DAMAGED:
                sound = next_sound(segment.mapped, segment.start, at + 1)
                # Without a sound record behind it the damage ends where the log was known to, or with the file.
                behind = sound if sound >= 0 else min(segment.end, flushed) if last_file else segment.end
                scan.damaged.append((at, behind))
                at = scan.end = behind
                if sound >= 0:
                    continue
                return not last_file
            full = scan.reason in (Stop.BLANK.value, Stop.END.value)
            scan.end = segment.end if full else at
            if verdict is Verdict.CUT:
                scan.cut_at = at
            return verdict is Verdict.NEXT_FILE

    def _cut(self, end: int) -> None:
        # Queues first: after a crash between the two the log still has what the queues lost, never the other way round.
        for queue in self._queues.cut(end):
            self._writer.mark_dirty(queue.units)
        self._log.cut(end)
        self._files.reach("recovery.log_cut")

    def _dispatch(self, scan: Scan, index_from: int) -> None:
        """Enter every verified record into queues and index; what they hold already is skipped by the kernel."""
        for begin, end in scan.sound:
            segment = next(s for s in self._log.segments if s.start <= begin < s.end)
            at = begin
            while at < end:
                code, at = self._writer.dispatch(segment.mapped, segment.start, at, end, index_from)
                if code == DONE:
                    break
                self._provide(code)
        for queue in self._queues.all():
            self._writer.mark_dirty(queue.units)

    def _provide(self, code: int) -> None:
        needed = self._writer.needed
        if code == NEED_QUEUE:
            self._queues.create(*needed)
        elif code == NEED_UNITS:
            needed.files_of.reserve(needed.planned)
        elif code == NEED_START:
            needed[0].files_of.start_at(needed[1])
        elif code == NEED_INDEX:
            self._index.reserve(needed)
        else:
            raise AssertionError(f"dispatch asked for {code}")
