"""A file layer that remembers what reached the disk, and can say what a power cut would leave.

Content is safe once its file was synced, a name once its folder was. Everything newer may be there or not, page by
page and name by name, in any order: `cut` draws one such outcome from a seed. Mapped writes are seen because files
are read anew.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

from razzo.storage.files import FileLayer

PAGE_BYTES = 512
"""A disk writes sectors; smaller pieces than the kernel's pages make worse outcomes, and more of them."""


class PowerCutFiles(FileLayer):
    """`root` is the store's folder. Snapshots are taken at each sync, so stores must be small."""

    def __init__(self, root: Path):
        super().__init__()
        self.root = root
        self._lock = threading.Lock()
        self._content: dict[int, bytes] = {}  # inode -> what is safe
        self._names: dict[Path, dict[str, int]] = {}  # folder -> name -> inode, as of its last sync
        self._held: dict[int, int] = {}  # inode -> a descriptor of ours: inodes must not be used again

    def sync_data(self, fd: int) -> None:
        super().sync_data(fd)
        self._remember(fd)

    def sync_dir(self, folder: Path) -> None:
        super().sync_dir(folder)
        with self._lock:
            self._names[folder] = _names_in(folder)

    def sync_everything(self, folder: Path) -> None:
        super().sync_everything(folder)
        for each, _, names in os.walk(self.root):
            for name in names:
                fd = os.open(Path(each, name), os.O_RDONLY)
                try:
                    self._remember(fd)
                finally:
                    os.close(fd)
            with self._lock:
                self._names[Path(each)] = _names_in(Path(each))

    def _remember(self, fd: int) -> None:
        with self._lock:
            inode = os.fstat(fd).st_ino
            if inode not in self._held:
                self._held[inode] = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
            self._content[inode] = _whole(self._held[inode])

    def cut(self, rng: random.Random, target: Path) -> None:
        """Writes one outcome of a power cut at this moment to `target`."""
        with self._lock:
            folders = {Path(folder) for folder, _, _ in os.walk(self.root)} | set(self._names)
            for folder in sorted(folders):
                self._cut_folder(rng, folder, target / folder.relative_to(self.root))

    def _cut_folder(self, rng: random.Random, folder: Path, target: Path) -> None:
        now = _names_in(folder) if folder.exists() else {}
        safe = self._names.get(folder, {})
        target.mkdir(parents=True, exist_ok=True)
        for name in sorted({*now, *safe}):
            inode = rng.choice([now.get(name), safe.get(name)])
            if inode is None:
                continue
            current = (folder / name).read_bytes() if now.get(name) == inode else self._content.get(inode, b"")
            (target / name).write_bytes(self._mixed(rng, self._content.get(inode), current))

    @staticmethod
    def _mixed(rng: random.Random, safe: bytes | None, current: bytes) -> bytes:
        """Each sector old or new; a file that was never synced may even be empty still."""
        if safe is None:
            safe = b"" if rng.random() < 0.2 else bytes(len(current))
            if not safe:
                return safe
        if len(safe) != len(current):
            return rng.choice([safe, current])
        share = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        return b"".join(
            (current if rng.random() < share else safe)[at : at + PAGE_BYTES] for at in range(0, len(safe), PAGE_BYTES)
        )

    def release(self) -> None:
        for fd in self._held.values():
            os.close(fd)


def _names_in(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder) if entry.is_file()}


def _whole(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)
