"""The data directory of `razzo up`, and that only one `razzo up` uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from razzo.cli.exits import CommandFailed, Exit

LOCK = "up.lock"
PID_BYTES_MAX = 32


@contextmanager
def held(data: Path) -> Iterator[None]:
    """Holds the directory (made when it is missing) for this process. CommandFailed when another one holds it."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as refused:
        raise CommandFailed(Exit.REFUSED, f"cannot use the data directory {data}: {refused.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, PID_BYTES_MAX).decode(errors="replace").strip() or "unknown"
            raise CommandFailed(
                Exit.REFUSED, f"the data directory {data} is in use by another `razzo up` (process {holder})"
            ) from None
        # The kernel drops the lock with the process; the number is only for the message above.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
