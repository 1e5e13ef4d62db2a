"""Making a running store smaller: cutting its end off, expiring its beginning. Both for the writing thread."""

import time
from pathlib import Path
from typing import NamedTuple

from razzo.storage import lookup
from razzo.storage._kernel import LogWriter
from razzo.storage.commit_log import CommitLog
from razzo.storage.files import FileLayer
from razzo.storage.flusher import DerivedFlusher, LogFlusher
from razzo.storage.key_index import KeyIndex
from razzo.storage.opening import index_again
from razzo.storage.queue_table import QueueTable
from razzo.storage.retention import RetentionReport, RetentionRules, decide
from razzo.storage.settings import StoreSettings


class Parts(NamedTuple):
    """What a store consists of."""

    log: CommitLog
    queues: QueueTable
    key_index: KeyIndex
    writer: LogWriter
    flusher: LogFlusher
    derived: DerivedFlusher
    settings: StoreSettings
    files: FileLayer


def cut_back(parts: Parts, physical_offset: int) -> None:
    """Drop every record from the one that begins at physical_offset on, durably. Checkpoint, queues, log: after a crash
    in between the log still has what the others lost."""
    log, queues, index, writer, flusher, derived, settings, files = parts
    flusher.flush_now()
    with flusher.hold(), derived.pause():
        derived.save_checkpoint(lower_to=physical_offset)
        files.reach("truncate.checkpoint_lowered")
        for queue in queues.cut(physical_offset):
            queue.sync()
        files.reach("truncate.queues_cut")
        index_from = index.cut(physical_offset) if settings.index_enabled else 0
        log.cut(physical_offset)
        files.reach("truncate.log_cut")
        last_ms = lookup.newest_store_ms(queues.all(), log)
        log.resume(physical_offset, last_ms)
        flusher.rewind(physical_offset, last_ms)
        for queue in queues.all():
            queue.correct_first(log.min_offset)
        if settings.index_enabled:
            index_again(log, index, queues, writer, index_from)


def expire(parts: Parts, root: Path, now_ms: int) -> RetentionReport:
    """Decide (retention.py) and do: remove old log files, then queue and index files that only spoke of them."""
    log, queues, index, _, flusher, derived, settings, files = parts
    rules = RetentionRules(settings.retention_hours, settings.delete_hour, settings.disk_max_used_percent,
                           settings.disk_clean_forcibly_percent, settings.disk_full_percent,
                           settings.delete_batch_files_max)  # fmt: skip
    used = files.usage_percent(root)
    mtimes = [files.mtime_ms(segment.path) for segment in log.segments]
    decision = decide(rules, mtimes, time.localtime(now_ms / 1000).tm_hour, used, now_ms)
    # Only what is on disk may go: queues must not point to what a crash would bring back.
    removed = min(decision.remove, sum(segment.end <= flusher.flushed for segment in log.segments[:-1]))
    queue_files = index_files = 0
    if removed:
        for _ in range(removed):
            log.drop_first()
        files.sync_dir(log.folder)
        start = log.min_offset
        with derived.pause():
            for queue in queues.all():
                queue.correct_first(start)
                queue_files += queue.expire(start)
            index_files = index.expire(start)
            queues.forget_deletions(start)
    return RetentionReport(decision.reason, removed, queue_files, index_files, used, decision.writable,
                           log.min_offset)  # fmt: skip
