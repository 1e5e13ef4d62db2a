"""The one door to the disk: every create, write, rename, truncate, unlink, fsync and fallocate of the store goes
through FileLayer, so that a test can hand in a faulty twin (`razzo.storage.faulty_files`).

A DiskFull leaves nothing behind: a file that could not be reserved is unlinked again.

CRASH_POINTS name the moments between two steps whose order matters; the real layer does nothing there, the twin can
kill the process or raise.
"""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from razzo.storage._kernel import MappedFile, sync_filesystem, zero_range
from razzo.storage.errors import DiskFull, StoreLocked

CRASH_POINTS = frozenset(
    {
        "append.before",  # nothing written yet
        "append.written",  # record, unit and index entries are in memory
        "flush.before",  # before an fdatasync of the log
        "flush.after",  # the log is on disk, nobody was told
        "segment.created",  # a new log file has its name and blocks
        "queue.created",  # a new queue file has its name
        "index.created",  # a new index file has its name
        "checkpoint.queues_flushed",  # queues on disk, checkpoint not yet
        "checkpoint.written",
        "truncate.checkpoint_lowered",  # nothing cut yet
        "truncate.queues_cut",  # queues cut, log not yet
        "truncate.log_cut",
        "retention.unlinked",  # after each log file removed
        "delete_topic.unlinked",  # after each queue file removed
        "config.temp_written",  # new content synced beside the old
        "config.backed_up",  # old content moved to .bak, new not yet in place
        "config.renamed",
        "close.log_flushed",
        "close.queues_flushed",
        "close.checkpoint_written",  # abort still there
        "recovery.queues_loaded",
        "recovery.log_cut",
        "recovery.dispatched",
    }
)

FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
COPY_BYTES = 1 << 20
_ZEROS = bytes(COPY_BYTES)
_BYTE_0_FOR_WRITING = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)  # struct flock of 64-bit Linux


class FileLayer:
    """The real file system. Methods raise OSError as the system calls do, except where DiskFull is named."""

    def reach(self, point: str) -> None:
        """A crash point was reached."""

    # --- names

    def make_dirs(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def list_files(self, folder: Path) -> list[str]:
        """Names of regular files, sorted; empty when the folder does not exist."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())
        return []

    def list_folders(self, folder: Path) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
        return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def mtime_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def sync_dir(self, folder: Path) -> None:
        """Make created, renamed and removed names durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # --- content

    def open(self, path: Path, *, create: bool = False, exclusive: bool = False) -> int:
        """File descriptor for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            raise self._refusal(error, path) from error

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write everything; DiskFull when the disk refuses."""
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(fd, view, offset)
                view = view[done:]
                offset += done
        except OSError as error:
            raise self._refusal(error, None) from error

    def set_size(self, fd: int, size: int) -> None:
        """Sparse logical size."""
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise self._refusal(error, None) from error

    def reserve(self, fd: int, offset: int, length: int) -> None:
        """Blocks for [offset, offset + length): writing there through a mapping cannot meet a full disk afterwards."""
        try:
            os.posix_fallocate(fd, offset, length)
        except OSError as error:
            raise self._refusal(error, None) from error

    def zero(self, fd: int, offset: int, length: int) -> None:
        """Overwrite [offset, offset + length) with zeros, in page-cache sized steps."""
        end = offset + length
        while offset < end:
            step = min(COPY_BYTES - offset % COPY_BYTES, end - offset)
            self.pwrite(fd, memoryview(_ZEROS)[:step], offset)
            offset += step

    def map(self, fd: int, size: int, *, writable: bool = True) -> MappedFile:
        try:
            return MappedFile(fd, size, writable)
        except OSError as error:
            raise self._refusal(error, None) from error

    def sync_data(self, fd: int) -> None:
        """fdatasync; the interpreter lock is free meanwhile."""
        os.fdatasync(fd)

    def sync_path(self, path: Path) -> None:
        """fdatasync of a file that is not kept open; one that was removed meanwhile needs no sync."""
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self.sync_data(fd)
            finally:
                os.close(fd)

    def sync_everything(self, folder: Path) -> None:
        """All files of the file system a folder lies on, names included: cheaper than many single ones."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync_filesystem(fd)
        finally:
            os.close(fd)

    def write_new(self, path: Path, data: bytes) -> None:
        """Create or overwrite a small file and sync it; a DiskFull leaves no half file."""
        fd = self.open(path, create=True)
        try:
            self.set_size(fd, 0)
            self.pwrite(fd, data, 0)
            self.sync_data(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(fd)

    def data_ranges(self, fd: int, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """Parts [first, last) of [offset, end) that are not holes; all of it where the file system cannot tell."""
        while offset < end:
            try:
                first = os.lseek(fd, offset, os.SEEK_DATA)
                last = os.lseek(fd, first, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    yield offset, end
                return
            if first >= end:
                return
            yield first, min(last, end)
            offset = last

    # --- the machine

    def usage_percent(self, folder: Path) -> int:
        """ceil(100 * used / (used + available to us)), as RocketMQ counts."""
        stats = os.statvfs(folder)
        used = stats.f_blocks - stats.f_bfree
        total = used + stats.f_bavail
        return -(-used * 100 // total) if total else 0

    def lock(self, path: Path) -> int:
        """Record lock on byte 0, which keeps out Java's FileChannel.tryLock as well; StoreLocked when somebody has it.

        An "open file description" lock: unlike the plain POSIX one it also stops a second open in this process, and
        does not vanish when anything here opens and closes the file. The two kinds conflict with each other.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _BYTE_0_FOR_WRITING)
            os.pwrite(fd, b"lock", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(
                    f"the store is open already, here or in another process ({path} is locked)"
                ) from error
            raise self._refusal(error, path) from error
        return fd

    def unlock(self, fd: int) -> None:
        os.close(fd)

    def zero_tail(self, fd: int, offset: int, length: int) -> None:
        """Drop whatever [offset, offset + length) held without giving its blocks back; reads zeros afterwards.

        Cheap where the file system can (FALLOC_FL_ZERO_RANGE), by writing zeros where it cannot.
        """
        if length > 0 and not zero_range(fd, offset, length):
            self.zero(fd, offset, length)

    def _refusal(self, error: OSError, path: Path | None) -> OSError | DiskFull:
        if error.errno in FULL_ERRNOS:
            where = f" for {path}" if path else ""
            return DiskFull(f"no space left on the disk{where}: {error.strerror}")
        return error
