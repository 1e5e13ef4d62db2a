"""Logs that roll, remembered ports, and the lock of a data directory."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from razzo.cli import datadir, ports
from razzo.cli.exits import CommandFailed, Exit
from razzo.cli.logfile import RollingLog


def test_a_full_log_rolls_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    log = RollingLog(tmp_path / "logs" / "x.log", file_bytes_max=10, files_max=3)
    for number in range(8):
        log.write(f"line {number}\n".encode())
    log.close()
    kept = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert kept == {
        "x.log": "line 6\nline 7\n",
        "x.log.1": "line 4\nline 5\n",
        "x.log.2": "line 2\nline 3\n",
    }


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    for word in (b"one\n", b"two\n", b"three\n"):
        log = RollingLog(tmp_path / "x.log", file_bytes_max=8)
        log.write(word)
        log.close()
    assert (tmp_path / "x.log").read_text() == "three\n"
    assert (tmp_path / "x.log.1").read_text() == "one\ntwo\n"


def test_ports_are_remembered(tmp_path: Path) -> None:
    assert ports.recall(tmp_path) == {}
    ports.remember(tmp_path, {"broker.client": 10911})
    assert ports.recall(tmp_path) == {"broker.client": 10911}
    assert [path.name for path in tmp_path.iterdir()] == [ports.REMEMBERED]


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"a": "b"}', '{"a": null}'])
def test_a_damaged_memory_is_none(tmp_path: Path, damage: str) -> None:
    (tmp_path / ports.REMEMBERED).write_text(damage)
    assert ports.recall(tmp_path) == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_first_free_port_is_taken(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as taken,
        socket.create_server((host, 0), family=family) as other,
    ):
        busy, free = taken.getsockname()[1], other.getsockname()[1]
        other.close()
        assert not ports.is_free(host, busy)
        assert ports.first_free(host, None, busy, free) == free
        assert ports.first_free(host, busy) == 0


def test_a_directory_is_held_by_one(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    with datadir.held(data):
        assert (data / datadir.LOCK).read_text() == f"{os.getpid()}\n"
        in_use = rf"in use by another `razzo up` \(process {os.getpid()}\)"
        with pytest.raises(CommandFailed, match=in_use) as failed, datadir.held(data):
            raise AssertionError("held twice")
        assert failed.value.code is Exit.REFUSED
    with datadir.held(data):
        assert stat.S_ISREG((data / datadir.LOCK).stat().st_mode)


def test_the_lock_of_a_dead_process_is_gone(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom razzo.cli import datadir\n"
        "with datadir.held(Path(sys.argv[1])):\n    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    with datadir.held(tmp_path):
        assert (tmp_path / datadir.LOCK).read_text() == f"{os.getpid()}\n"


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandFailed, match="cannot use the data directory") as failed, datadir.held(tmp_path / "file"):
        raise AssertionError("held a file")
    assert failed.value.code is Exit.REFUSED
