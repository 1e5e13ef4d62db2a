"""Doing what recovery.py decides: scan the log, cut a torn tail, rebuild queues and index from it (sections 5.2 to
5.5)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from razzo.storage._kernel import (
    DONE,
    NEED_INDEX,
    NEED_QUEUE,
    NEED_START,
    NEED_UNITS,
    LogWriter,
    dispatch,
    first_record,
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
        units_before, keys_before = self._writer.dispatched_units, self._writer.dispatched_keys
        scan = self._rebuild(start, checkpoint.flushed, index_from)
        if scan is None:
            start = 0
            scan = self._rebuild(start, checkpoint.flushed, index_from)
            if scan is None:
                raise AssertionError("a scan of the whole log asks for no longer one")
        begin = self._log.segments[start].start if self._log.segments else 0
        self._files.reach("recovery.dispatched")
        for queue in self._queues.all():
            queue.trim(scan.end)
            queue.correct_first(self._log.min_offset)
        report = RecoveryReport(
            clean=clean,
            scanned_from=begin,
            end=scan.end,
            cut_at=scan.cut_at,
            cut_reason=scan.reason,
            records_scanned=scan.records,
            bytes_scanned=scan.end - begin,
            units_rebuilt=self._writer.dispatched_units - units_before,
            keys_rebuilt=self._writer.dispatched_keys - keys_before,
            queues=len(self._queues.all()),
            duration_ms=int((time.monotonic() - began) * 1000),
            damaged=tuple(scan.damaged),
        )
        return report, scan.last_ms

    def _rebuild(self, start: int, flushed: int, index_from: int) -> Scan | None:
        """Verify from file `start` on, cut, dispatch. None when that file turned out to be too late a start: a queue
        lost all its files, and its beginning lies further back in the log."""
        scan = self._verify(start, flushed)
        self._cut(scan.end)
        self._log.damaged = scan.damaged
        return scan if self._dispatch(scan, index_from, whole=start == 0) else None

    def _index_from(self, clean: bool, checkpoint: Checkpoint) -> int:
        """Physical offset from which records may be missing in the index."""
        if not self._settings.index_enabled or (clean and checkpoint.index_files == len(self._index.index_files)):
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
            if not self._verify_file(scan, segments[position:], flushed):
                break
        if scan.end < flushed:
            raise CorruptStore(
                f"{self._log.folder}: the log was on disk up to {flushed} but its files end at {scan.end}; nothing was "
                "changed. Restore the missing files, or remove the checkpoint to accept losing them."
            )
        return scan

    def _verify_file(self, scan: Scan, segments: Sequence[Segment], flushed: int) -> bool:
        """Verify the first of `segments` (the rest are those after it); True to go on with the next one."""
        segment, last_file = segments[0], len(segments) == 1
        at = segment.start
        while True:
            begin = at
            reason, at, last_ms, records = verify_span(
                segment.mapped, segment.start, at, self._settings.check_crc_on_recover
            )
            scan.records += records
            scan.last_ms = last_ms or scan.last_ms
            if at > begin:
                scan.sound.append((begin, at))
            stop = Stop(reason)
            if stop in (Stop.BLANK, Stop.END):
                scan.end = segment.end
                return judge_stop(stop, False, False, last_file) is Verdict.NEXT_FILE
            sound = self._log.sound_behind(segment, at)
            behind = sound >= 0 or any(self._log.sound_behind(later, later.start - 1) >= 0 for later in segments[1:])
            verdict = judge_stop(stop, behind, at < flushed, last_file)
            if verdict is not Verdict.DAMAGED:
                scan.end = at
                if verdict is Verdict.CUT:
                    scan.cut_at, scan.reason = at, reason
                return False
            go_on_in_next = sound < 0 and (behind or (flushed > segment.end and not last_file))
            until = sound if sound >= 0 else segment.end if go_on_in_next else min(segment.end, flushed)
            scan.damaged.append((at, until))
            at = scan.end = until
            if sound < 0:
                return go_on_in_next

    def _cut(self, end: int) -> None:
        # Queues first: after a crash between the two the log still has what the queues lost, never the other way round.
        for queue in self._queues.cut(end):
            self._writer.mark_dirty(queue.units)
        self._log.cut(end)
        self._files.reach("recovery.log_cut")

    def _dispatch(self, scan: Scan, index_from: int, *, whole: bool) -> bool:
        """False when a queue without files has to begin above 0, though the scan did not see the whole log."""
        for begin, end in scan.sound:
            segment = next(s for s in self._log.segments if s.start <= begin < s.end)
            if not enter(self._writer, self._queues, self._index, segment, begin, end, index_from, whole=whole):
                return False
        for queue in self._queues.all():
            self._writer.mark_dirty(queue.units)
        return True


def enter(writer: LogWriter, queues: QueueTable, index: KeyIndex, segment: Segment, begin: int, end: int,
          index_from: int, *, whole: bool) -> bool:  # fmt: skip
    """Enter the verified records of [begin, end) of one file into queues and index; what they hold already is skipped.
    False, before its first unit, when an empty queue would not begin at 0 and the log was not gone through `whole`."""
    at = begin
    while at < end:
        code, at = dispatch(writer, segment.mapped, segment.start, at, end, index_from)
        needed = writer.needed
        if code == DONE:
            break
        if code == NEED_QUEUE:
            queues.create(*needed)
        elif code == NEED_UNITS:
            needed.files_of.reserve(needed.planned)
        elif code == NEED_START:
            if not whole and needed[0].file_count == 0:
                return False
            needed[0].files_of.start_at(needed[1])
        elif code == NEED_INDEX:
            index.reserve(needed)
        else:
            raise AssertionError(f"dispatch asked for {code}")
    return True


def index_again(log: CommitLog, index: KeyIndex, queues: QueueTable, writer: LogWriter, index_from: int) -> None:
    """Index the records from `index_from` to the end once more, after a cut dropped whole index files."""
    for segment in log.segments:
        begin, end = max(segment.start, index_from), min(segment.end, writer.end_physical)
        while begin < end:
            _, sound_end, _, _ = verify_span(segment.mapped, segment.start, begin, True)
            enter(writer, queues, index, segment, begin, min(sound_end, end), index_from, whole=True)
            begin = log.sound_behind(segment, sound_end)
            if begin < 0:
                break
