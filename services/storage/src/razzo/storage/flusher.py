"""The two threads that put things on disk.

LogFlusher is the group commit: senders wait for an offset, one fdatasync serves all of them, one call on the loop
releases them. DerivedFlusher puts queues, full index files and the checkpoint on disk at intervals, in that order: the
checkpoint only ever claims what is on disk already.

A failed fsync is final. The kernel drops the dirty pages' error state once it has told somebody, so a second fsync that
succeeds proves nothing; the store stops taking and confirming messages and says so to everybody.
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from razzo.storage._kernel import LogWriter
from razzo.storage.checkpoint import Checkpoint, CheckpointFile
from razzo.storage.commit_log import CommitLog
from razzo.storage.errors import StoreClosed, StoreError
from razzo.storage.files import FileLayer
from razzo.storage.key_index import KeyIndex
from razzo.storage.settings import FlushMode, StoreSettings

SINGLE_SYNCS_MAX = 32  # with more queues than this the whole file system is synced at once


class LogFlusher:
    """`flushed`: physical offset below which the log is on disk; `flushed_ms`: store time of the last record below
    it."""

    def __init__(self, log: CommitLog, writer: LogWriter, settings: StoreSettings, files: FileLayer,
                 on_moved: Callable[[], None], on_failed: Callable[[str], None]) -> None:  # fmt: skip
        self._log = log
        self._writer = writer
        self._files = files
        self._linger_s = settings.flush_linger_us / 1_000_000
        self._interval_s = settings.flush_interval_ms / 1_000
        self._sync = settings.flush_mode is FlushMode.SYNC
        self._on_moved = on_moved
        self._on_failed = on_failed
        self._wake = threading.Event()
        self._stopping = False
        self._one_at_a_time = threading.Lock()
        self.flushed = 0
        self.flushed_ms = 0
        self.flushes = 0
        self.failed: str | None = None
        self._thread = threading.Thread(target=self._run, name="razzo-log-flusher", daemon=True)

    def start(self, flushed: int, flushed_ms: int) -> None:
        self.flushed = flushed
        self.flushed_ms = flushed_ms
        self._thread.start()

    def request(self) -> None:
        """Flush soon. Cheap when one is asked for already."""
        if not self._wake.is_set():
            self._wake.set()

    def flush_now(self) -> int:
        """Flush everything written so far, in the calling thread; returns `flushed`. StoreClosed when the disk
        fails."""
        with self._one_at_a_time:
            if self.failed is not None:
                raise StoreClosed(self.failed)
            # Time before offset: the time may be too old for the offset, never too new.
            written_ms = self._writer.last_store_time_ms
            end = self._writer.end_physical
            if end > self.flushed:
                segments = self._log.unsynced(self.flushed, end)
                try:
                    self._files.reach("flush.before")
                    self._log.sync(segments)
                    self._files.reach("flush.after")
                except OSError as error:
                    self.failed = (
                        f"the log could not be put on disk ({error}); nothing after offset {self.flushed} is safe"
                    )
                    self._on_failed(self.failed)
                    raise StoreClosed(self.failed) from error
                self.flushed_ms = written_ms
                self.flushed = end
                self.flushes += 1
                self._log.seal_below(end)
            return self.flushed

    def hold(self) -> threading.Lock:
        """Hold this lock to keep flushes out (cuts)."""
        return self._one_at_a_time

    def rewind(self, flushed: int, flushed_ms: int) -> None:
        """Inside hold(), after a cut: everything left is on disk."""
        self.flushed = flushed
        self.flushed_ms = flushed_ms

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval_s)
            if self._stopping:
                return
            if self._sync and self._linger_s:
                time.sleep(self._linger_s)
            self._wake.clear()
            before = self.flushed
            try:
                after = self.flush_now()
            except StoreClosed:
                return
            if after > before:
                self._on_moved()


class DerivedFlusher:
    """Queues and index every queue_flush_interval_ms, checkpoint every checkpoint_interval_ms."""

    def __init__(self, flusher: LogFlusher, writer: LogWriter, index: KeyIndex, checkpoint: CheckpointFile,
                 settings: StoreSettings, files: FileLayer, on_failed: Callable[[str], None]) -> None:  # fmt: skip
        self._flusher = flusher
        self._writer = writer
        self._index = index
        self._checkpoint = checkpoint
        self._files = files
        self._on_failed = on_failed
        self._queue_interval_s = settings.queue_flush_interval_ms / 1_000
        self._checkpoint_interval_s = settings.checkpoint_interval_ms / 1_000
        self._index_enabled = settings.index_enabled
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._queues_ms = 0
        self._index_ms = 0
        self._thread = threading.Thread(target=self._run, name="razzo-derived-flusher", daemon=True)

    def start(self, queues_ms: int, index_ms: int) -> None:
        """Everything up to store time queues_ms is in the queues on disk, up to index_ms in full index files."""
        self._queues_ms = queues_ms
        self._index_ms = index_ms
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def flush_queues(self) -> None:
        """Every unit of records appended before the call is on disk when it returns."""
        with self._lock:
            written_ms = self._writer.last_store_time_ms
            dirty = self._writer.take_dirty_queues()
            if len(dirty) > SINGLE_SYNCS_MAX:
                self._files.sync_everything(self._checkpoint.folder)
            for queue in dirty:
                queue.files_of.sync(done=len(dirty) > SINGLE_SYNCS_MAX)
            self._queues_ms = max(self._queues_ms, written_ms)
            if self._index_enabled:
                self._index_ms = max(self._index_ms, self._index.sync_full())

    def save_checkpoint(self, *, lower_to: int | None = None, clean: bool = False) -> None:
        """lower_to: the log is about to be cut to this offset, claim no more than that. clean: every index file is
        whole and on disk, and no more will be written."""
        with self._lock:
            flushed = self._flusher.flushed if lower_to is None else min(lower_to, self._flusher.flushed)
            index_ms = self._flusher.flushed_ms if clean and self._index_enabled else self._index_ms
            self._checkpoint.save(
                Checkpoint(
                    log_ms=self._flusher.flushed_ms,
                    queues_ms=min(self._queues_ms, self._flusher.flushed_ms),
                    index_ms=index_ms,
                    master_flushed=self._checkpoint.value.master_flushed,
                    flushed=flushed,
                    index_files=len(self._index.index_files) if clean and self._index_enabled else -1,
                )
            )

    def pause(self) -> AbstractContextManager[object]:
        """Hold this lock to keep queues and checkpoint still (cuts, deletions)."""
        return self._lock

    def _run(self) -> None:
        last_queues = time.monotonic()
        while not self._stop.wait(self._checkpoint_interval_s):
            if self._flusher.failed is not None:
                return
            try:
                if time.monotonic() - last_queues >= self._queue_interval_s:
                    self.flush_queues()
                    self._files.reach("checkpoint.queues_flushed")
                    last_queues = time.monotonic()
                self.save_checkpoint()
            except StoreError:
                # A full disk: the checkpoint is rewritten in place, so the next round may succeed; nothing is lost
                # meanwhile.
                continue
            except OSError as error:
                self._on_failed(f"queues or checkpoint could not be put on disk ({error})")
                return
