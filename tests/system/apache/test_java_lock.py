"""A JVM's FileChannel lock and ours keep each other out, both ways, whatever else opens and closes the lock file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from razzo.storage import Store, StoreLocked, StoreSettings

SOURCE = Path(__file__).with_name("JavaLock.java")
JVM_S_MAX = 60
SMALL = StoreSettings(commit_log_file_bytes=1 << 16, index_enabled=False)


@contextmanager
def java_lock(path: Path) -> Iterator[str]:
    """What a JVM that tries the lock says; one that got it holds it until the end of the block."""
    java = subprocess.Popen(
        ["java", "-XX:TieredStopAtLevel=1", str(SOURCE), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert java.stdin is not None
    assert java.stdout is not None
    try:
        yield java.stdout.readline().decode().strip()
    finally:
        java.stdin.close()
        try:
            assert java.wait(JVM_S_MAX) == 0
        finally:
            java.kill()
            java.stdout.close()


def test_our_lock_keeps_java_out(tmp_path: Path) -> None:
    store = Store(tmp_path, SMALL)
    store.open()
    try:
        # A plain POSIX lock would be gone after this: closing any descriptor of the file drops those of the process.
        (tmp_path / "lock").read_bytes()
        with java_lock(tmp_path / "lock") as said:
            assert said == "refused"
    finally:
        store.close()
    with java_lock(tmp_path / "lock") as said:
        assert said == "locked"


def test_javas_lock_keeps_us_out(tmp_path: Path) -> None:
    with java_lock(tmp_path / "lock") as said:
        assert said == "locked"
        with pytest.raises(StoreLocked):
            Store(tmp_path, SMALL).open()
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    store = Store(tmp_path, SMALL)
    store.open()
    store.close()
