"""A log file with a bounded size: what a service prints, kept in a few files that roll."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

FILE_BYTES_MAX = 16 << 20
FILES_MAX = 4
"""name.log and the older name.log.1 … name.log.3: at most 64 MiB a service."""


class RollingLog:
    """Appends bytes to a file; a file that is full becomes `.1`, the oldest of `files_max` is dropped.

    A file may pass `file_bytes_max` by one chunk: chunks are never split, so lines stay whole when chunks are lines.
    """

    def __init__(self, path: Path, file_bytes_max: int = FILE_BYTES_MAX, files_max: int = FILES_MAX) -> None:
        self.path = path
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open()

    def write(self, chunk: bytes) -> None:
        """OSError when the disk refuses."""
        if self._file.tell() >= self._file_bytes_max:
            self._roll()
        self._file.write(chunk)
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _open(self) -> BinaryIO:
        file = open(self.path, "ab")  # noqa: SIM115 - closed by close() or _roll()
        file.seek(0, os.SEEK_END)
        return file

    def _roll(self) -> None:
        self._file.close()
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{age}") for age in range(1, self._files_max))]
        for older, younger in zip(reversed(names), reversed(names[:-1]), strict=False):
            if younger.exists():
                younger.replace(older)
        self._file = self._open()
