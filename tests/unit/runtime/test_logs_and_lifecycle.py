"""Log lines, and the life of a service process (in a process of its own)."""

from __future__ import annotations

import io
import json
import logging
import signal
import subprocess
import sys

import pytest

from razzo.runtime.lifecycle import Lifecycle
from razzo.runtime.logs import LogLevel, configure, fields

SERVICE = '''
import asyncio, os, sys
from razzo.runtime.lifecycle import StartFailed, run_service
from razzo.runtime.logs import LogLevel, configure

how = sys.argv[1]
events = []

async def part(name):
    os.write(2, (name + "\\n").encode())  # whole lines beside the log's
    if how == "stop fails" and name == "stop b":
        raise ValueError("stop")

async def loop():
    if how == "loop fails":
        raise ValueError("loop")
    await asyncio.Event().wait()

async def compose(life):
    if how == "start fails":
        raise StartFailed("the disk is gone")
    await life.start("a", lambda: part("start a"), lambda: part("stop a"))
    await life.start("b", lambda: part("start b"), lambda: part("stop b"))
    life.spawn("loop", loop())
    return {"service": "test"}

logging = configure(LogLevel.INFO)
try:
    code = run_service(compose)
finally:
    logging.close()
sys.exit(code)
'''


def start(how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVICE, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line in ("start a", "start b", "stop a", "stop b")]


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_parts_backwards(with_signal: signal.Signals) -> None:
    with start("well") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"event": "ready", "service": "test"}
        process.send_signal(with_signal)
        rest, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
    assert rest == "", "stdout carries the ready line only"
    assert lines_of(errors) == ["start a", "start b", "stop b", "stop a"]


def test_a_loop_that_fails_stops_the_service() -> None:
    with start("loop fails") as process:
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "part failed part=loop" in errors
    assert lines_of(errors)[-2:] == ["stop b", "stop a"]


def test_a_start_that_fails_says_why_in_one_line() -> None:
    with start("start fails") as process:
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (3, "")
    assert errors.splitlines()[0].endswith("cannot start: the disk is gone")
    assert "Traceback" not in errors


def test_a_stop_that_fails_does_not_keep_the_others() -> None:
    with start("stop fails") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert lines_of(errors)[-1] == "stop a"


async def test_a_part_whose_start_fails_is_not_stopped() -> None:
    life, stopped = Lifecycle(), []

    async def start_well() -> None: ...

    async def start_badly() -> None:
        raise OSError("taken")

    def stop(name: str):
        async def record() -> None:
            stopped.append(name)

        return record

    await life.start("a", start_well, stop("a"))
    with pytest.raises(OSError, match="taken"):
        await life.start("b", start_badly, stop("b"))
    assert await life.stop_all()
    assert stopped == ["a"]


def test_lines_are_one_line_each_with_their_fields() -> None:
    stream = io.StringIO()
    logs = configure(LogLevel.INFO, stream)
    try:
        log = logging.getLogger("razzo.test")
        log.debug("not this")
        log.info("broker\nregistered", extra=fields(broker="a b", topics=3, odd='"='))
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("failed")
    finally:
        logs.close()
    lines = stream.getvalue().splitlines()
    assert lines[0].split(" ", 1)[1] == (
        'INFO razzo.test broker\\nregistered broker="a b" topics=3 odd="\\"="'
    )
    assert lines[1].endswith("ERROR razzo.test failed")
    assert lines[-1] == "  ValueError: why"
    assert all(line.startswith("  ") for line in lines[2:])


def test_a_level_below_debug_of_grpc_is_not_wanted() -> None:
    stream = io.StringIO()
    logs = configure(LogLevel.DEBUG, stream)
    try:
        logging.getLogger("grpc._cython.cygrpc").debug("noise")
        logging.getLogger("razzo.test").debug("wanted")
    finally:
        logs.close()
        logging.getLogger().setLevel(logging.WARNING)
    assert "noise" not in stream.getvalue()
    assert "wanted" in stream.getvalue()
