"""The face of the store: append a batch, wait for the disk, read, find, cut, expire.

Appending is for one thread (the loop that owns the store); reading is for any. The commit log is the truth, everything
else is derived from it and rebuilt from it when in doubt.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from razzo.protocol import limits, properties
from razzo.storage._kernel import (
    NEED_INDEX,
    NEED_PAGES,
    NEED_QUEUE,
    NEED_SEGMENT,
    NEED_UNITS,
    LogWriter,
    SendWire,
    TooLarge,
)
from razzo.storage.checkpoint import CheckpointFile
from razzo.storage.commit_log import CommitLog
from razzo.storage.configs import Configs
from razzo.storage.confirming import Confirming
from razzo.storage.consume_queue import ConsumeQueue
from razzo.storage.errors import CorruptStore, DiskFull, MessageTooLarge, StoreClosed, StoreError
from razzo.storage.files import FileLayer
from razzo.storage.flusher import DerivedFlusher, LogFlusher
from razzo.storage.key_index import KeyIndex
from razzo.storage.messages import Appended, AppendedRequests, NewMessage, pack_host
from razzo.storage.opening import Opening
from razzo.storage.queue_table import QueueTable
from razzo.storage.reading import Reading
from razzo.storage.recovery import RecoveryReport
from razzo.storage.retention import RetentionReport
from razzo.storage.settings import DELAY_LEVELS_MS, FlushMode, StoreSettings
from razzo.storage.shrinking import Parts, cut_back, expire


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Store(Reading):
    """One store directory. Build, `open()`, use, `close()`."""

    def __init__(self, root: Path, settings: StoreSettings | None = None, *, clock_ms: Callable[[], int] =
    wall_clock_ms,
                 files: FileLayer | None = None) -> None:  # fmt: skip
        self.root = Path(root)
        self.settings = settings or StoreSettings()
        self._clock_ms = clock_ms
        self._files = files or FileLayer()
        # The hot path asks for crash points only when somebody listens.
        self._reach = None if type(self._files) is FileLayer else self._files.reach
        self._sync = self.settings.flush_mode is FlushMode.SYNC
        self._configs = Configs(self.root / "config", self._files)
        self._confirming = Confirming(
            self.settings.waiters_max, lambda: self._flusher.flushed, lambda: self.confirm_offset
        )
        self._build()
        self._refusal: StoreError | None = StoreClosed("the store is not open")
        self._disk_full = False
        self._opened = False

    # --- life

    def _build(self) -> None:
        """Everything of one open(); no disk is touched."""
        settings, files = self.settings, self._files
        self._writer = LogWriter(
            file_bytes=settings.commit_log_file_bytes,
            body_max=settings.body_bytes_max,
            properties_max=settings.properties_bytes_max,
            store_host=pack_host(*settings.store_host),
            crc_property=settings.append_crc_property,
            index_enabled=settings.index_enabled,
            delays=DELAY_LEVELS_MS,
            appended=Appended,
        )
        self._send_wire = SendWire(
            self._writer,
            body_bytes_max=settings.body_bytes_max,
            text_bytes_max=limits.MESSAGE_PROPERTIES_BYTES_MAX,
            id_bytes_max=limits.MESSAGE_ID_BYTES_MAX,
            trace_bytes_max=limits.TRACE_CONTEXT_BYTES_MAX,
            reserved_names=properties.RESERVED,
            reserved_prefixes=[properties.TRANSIENT_PREFIX],
        )
        self._queues = QueueTable(self.root, settings, files, self._writer)
        self._log = CommitLog(self.root / "commitlog", settings, files, self._writer)
        self._index = KeyIndex(self.root / "index", settings, files, self._writer)
        self._checkpoint = CheckpointFile(self.root / "checkpoint", files)
        self._flusher = LogFlusher(self._log, self._writer, settings, files, self._log_flushed, self._disk_failed)
        self._derived = DerivedFlusher(
            self._flusher, self._writer, self._index, self._checkpoint, settings, files, self._disk_failed
        )
        self._parts = Parts(
            self._log, self._queues, self._index, self._writer, self._flusher, self._derived, settings, files
        )
        self._growing: set[ConsumeQueue] = set()
        self._grew = False

    def open(self) -> RecoveryReport:
        """Lock, load, recover, start the flushers. Blocking. StoreLocked, CorruptStore, DiskFull; the lock is free
        then."""
        if self._opened:
            raise StoreError("the store is open already")
        self._build()
        self._files.make_dirs(self.root)
        lock_fd = self._files.lock(self.root / "lock")
        try:
            report = self._load()
        except BaseException as error:
            self._stop_parts()
            self._files.unlock(lock_fd)
            if isinstance(error, OSError):
                raise CorruptStore(f"the store could not be opened: {error}") from error
            raise
        self._lock_fd = lock_fd
        self._opened = True
        self._refusal = None
        return report

    def _load(self) -> RecoveryReport:
        clean = not self._files.exists(self.root / "abort")
        checkpoint = self._checkpoint.load()
        self._log.load()
        self._queues.load()
        self._files.reach("recovery.queues_loaded")
        if self.settings.index_enabled:
            self._index.load(clean, checkpoint.index_ms)
        opening = Opening(self._log, self._index, self._writer, self.settings, self._files, self._queues)
        report, last_ms = opening.run(clean, checkpoint)
        # What was found may sit in memory only (a killed process): put it on disk before anything builds on it.
        self._log.sync(self._log.segments)
        last_ms = last_ms or checkpoint.log_ms
        self._log.start(report.end, last_ms)
        self._files.write_new(self.root / "abort", str(os.getpid()).encode())
        self._files.sync_dir(self.root)
        self._flusher.start(report.end, last_ms)
        self._derived.flush_queues()
        # Index files written to from now on are not whole until they are full: index_ms must not cover them any more.
        self._derived.start(last_ms, self._index.sync_full())
        self._derived.save_checkpoint()
        self._log.written(report.end)
        return report

    def close(self) -> None:
        """Clean stop: everything on disk, checkpoint, then `abort` goes. After a disk failure `abort` stays.
        Idempotent."""
        if not self._opened:
            return
        self._opened = False
        self._refusal = self._refusal or StoreClosed("the store is closed")
        try:
            self._flusher.stop()
            self._derived.stop()
            if self._flusher.failed is None:
                self._flush_everything()
            self._settle_waiters()
        finally:
            self._stop_parts()
            self._files.unlock(self._lock_fd)

    def _flush_everything(self) -> None:
        self._flusher.flush_now()
        self._files.reach("close.log_flushed")
        self._derived.flush_queues()
        if self.settings.index_enabled:
            self._index.sync_all()
        self._files.reach("close.queues_flushed")
        self._derived.save_checkpoint(clean=True)
        self._files.reach("close.checkpoint_written")
        self._files.unlink(self.root / "abort")
        self._files.sync_dir(self.root)

    def _stop_parts(self) -> None:
        self._flusher.stop()
        self._derived.stop()
        self._log.close()
        self._index.close()

    def attach_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Where callbacks and releases run."""
        self._confirming.attach_loop(loop)

    # --- writing

    def append(self, batch: Sequence[NewMessage], *, flush: bool = True) -> list[Appended]:
        """Write a batch, in order, all or nothing. MessageTooLarge, ValueError and TypeError name the message; DiskFull
        and StoreClosed; nothing was written when it raises.

        SYNC without `flush`: the batch asks for no flush of its own. It goes to the disk with the next one, after
        flush_interval_ms at the latest; until then readers do not see it (waiting for its offset hurries it)."""
        self._check_writable()
        writer = self._writer
        try:
            if self._reach is not None:
                self._reach("append.before")
            result = writer.append(batch, self._clock_ms())
            while type(result) is int:
                self._provide(result)
                result = writer.run()
        except TooLarge as error:
            raise MessageTooLarge(str(error)) from None
        except BaseException:
            writer.forget()
            raise
        self._appended(flush)
        written: list[Appended] = result
        return written

    def append_requests(self, requests: list[bytes], hosts: list[bytes]) -> AppendedRequests:
        """Write the messages of SendMessage requests (protobuf), those that are plainly valid and go to a topic that
        was offered (`offer_topic`); `hosts` are the senders' packed addresses. DiskFull and StoreClosed; nothing was
        written when it raises."""
        self._check_writable()
        wire = self._send_wire
        try:
            if self._reach is not None:
                self._reach("append.before")
            if not wire.load(requests, hosts, self._clock_ms()):
                return AppendedRequests([None] * len(requests), 0, set())
            while code := wire.run():
                self._provide(code)
            result = AppendedRequests(*wire.answers())
        except BaseException:
            wire.forget()
            raise
        self._appended(True)
        return result

    def offer_topic(self, topic: str, queues: int) -> None:
        """`append_requests` may take NORMAL messages of this topic, for queues 0 to `queues` - 1; 0: not any more."""
        self._send_wire.offer(topic, queues)

    def _check_writable(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        if self._disk_full:
            raise DiskFull(
                f"the disk is used to {self.settings.disk_full_percent} percent or more; no message is taken"
            )

    def _appended(self, flush: bool) -> None:
        """After every append: tells the flushers and the readers."""
        if self._reach is not None:
            self._reach("append.written")
        self._log.written(self._writer.end_physical)
        if self._grew:
            self._settle_growth()
        if not self._sync:
            self._confirming.written()
        elif flush:
            self._flusher.request()

    def _provide(self, code: int) -> None:
        """Get what a planned batch lacks. DiskFull; any other refusal of the disk is a StoreError."""
        needed: Any = self._writer.needed
        self._grew = True
        try:
            if code == NEED_PAGES:
                self._log.add_pages(needed)
            elif code == NEED_UNITS:
                needed.files_of.reserve(needed.planned)
                self._growing.add(needed.files_of)
            elif code == NEED_SEGMENT:
                self._log.add_segment()
            elif code == NEED_QUEUE:
                self._queues.create(*needed)
            elif code == NEED_INDEX:
                self._index.reserve(needed)
            else:
                raise AssertionError(f"the kernel asked for {code}")
        except OSError as error:
            raise StoreError(f"the disk refuses a new file or block: {error}") from error

    def _settle_growth(self) -> None:
        """After a batch that needed new files: forget those that are full."""
        self._log.trim()
        self._index.trim()
        confirm = self.confirm_offset
        self._growing = {queue for queue in self._growing if not queue.trim(confirm)}
        self._grew = bool(self._growing)

    async def wait_flushed(self, offset: int, timeout_s: float | None = None) -> bool:
        """True once the log is on disk up to `offset`, False after timeout_s (default sync_flush_timeout_ms).
        StoreClosed when the disk failed or the store was closed before; StoreError when waiters_max wait already."""
        if offset <= self._flusher.flushed:
            return True
        if self._refusal is not None:
            raise self._refusal
        if timeout_s is None:
            timeout_s = self.settings.sync_flush_timeout_ms / 1_000
        return await self._confirming.wait(offset, timeout_s, self._flusher.request)

    def on_confirmed(self, callback: Callable[[int], None]) -> None:
        """Call back on the loop thread with the confirm offset each time it has moved (several moves may share a
        call)."""
        self._confirming.add_callback(callback)

    def _log_flushed(self) -> None:
        """On the flusher thread."""
        self._confirming.from_thread(self._confirming.release)

    def _disk_failed(self, why: str) -> None:
        """On a flusher thread: from now on nothing is taken or confirmed."""
        error = StoreClosed(why)
        self._refusal = error
        self._flusher.failed = self._flusher.failed or why
        self._confirming.from_thread(lambda: self._confirming.fail(error))

    def _settle_waiters(self) -> None:
        """At close: everything is on disk, or the disk failed."""
        error = self._refusal or StoreClosed("the store is closed")
        if self._flusher.failed is None:
            self._confirming.from_thread(self._confirming.release)
        self._confirming.from_thread(lambda: self._confirming.fail(error))

    # --- changing what is there: the writing thread

    def truncate(self, physical_offset: int) -> None:
        """Drop every record from a record's start on, durably. ValueError when no record begins there."""
        if self._refusal is not None:
            raise self._refusal
        end = self._writer.end_physical
        if physical_offset >= end:
            return
        if physical_offset < self._log.min_offset or self._log.read_at(physical_offset, end) is None:
            raise ValueError(f"no record begins at offset {physical_offset}")
        cut_back(self._parts, physical_offset)

    def delete_topic(self, topic: str) -> None:
        """Drop a topic's queues and their files, for good; its records stay in the log until they expire. The next
        message of the topic starts at queue offset 0."""
        if self._refusal is not None:
            raise self._refusal
        with self._derived.pause():
            self._growing.difference_update(self._queues.delete(topic, self._writer.end_physical))

    def run_retention(self, now_ms: int) -> RetentionReport:
        """Decide (retention.py) and do: remove old log files, then queue and index files that only spoke of them."""
        report = expire(self._parts, self.root, now_ms)
        self._disk_full = not report.writable
        return report

    # --- the rest

    def describe(self) -> dict[str, Any]:
        """Offsets, sizes and lag, for metrics and admin."""
        end = self._writer.end_physical
        return {
            "root": str(self.root),
            "flush_mode": self.settings.flush_mode.value,
            "writable": self._refusal is None and not self._disk_full,
            "refusal": None if self._refusal is None else str(self._refusal),
            "disk_full": self._disk_full,
            "damaged": list(self._log.damaged),
            "min_physical_offset": self._log.min_offset,
            "max_physical_offset": end,
            "flushed_offset": self._flusher.flushed,
            "confirm_offset": self.confirm_offset,
            "flush_lag_bytes": end - self._flusher.flushed,
            "flushes": self._flusher.flushes,
            "waiters": len(self._confirming),
            "log_files": len(self._log.segments),
            "queues": self._queues.count,
            "index_files": len(self._index.index_files),
            "records_appended": self._writer.records_total,
            "bytes_appended": self._writer.bytes_total,
            "last_store_ms": self._writer.last_store_time_ms,
        }

    def load_config(self, name: str) -> dict[str, Any] | None:
        """config/<name>.json, or its .bak; None when there is neither."""
        return self._configs.load(name)

    def save_config(self, name: str, value: dict[str, Any]) -> None:
        """Write config/<name>.json durably; the former one becomes .bak."""
        self._configs.save(name, value)
