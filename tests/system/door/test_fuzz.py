"""The native door under inputs that no client sends, and under many that clients do send.

``DOOR_FUZZ_INPUTS`` and ``DOOR_FUZZ_SEED`` choose a longer or another run, ``DOOR_LEAK_CALLS`` a longer leak check.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from door.conftest import KINDS
from door.probe import path
from door.process import DoorProcess, python_path

INPUTS = int(os.environ.get("DOOR_FUZZ_INPUTS", "10000"))
SEED = int(os.environ.get("DOOR_FUZZ_SEED", "1"))
LEAK_CALLS = int(os.environ.get("DOOR_LEAK_CALLS", "40000"))
MIB = 1 << 20


@pytest.mark.timeout(60 + INPUTS // 50)
def test_ten_thousand_mutated_connections(tmp_path: Path) -> None:
    trace = tmp_path / "input"
    command = [sys.executable, "-X", "faulthandler", "-m", "door.fuzz", "--trace", str(trace)]
    done = subprocess.run(
        [*command, "--inputs", str(INPUTS), "--seed", str(SEED)],
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    last = trace.read_text() if trace.exists() else "none"
    assert done.returncode == 0, f"input {last} of seed {SEED}: {done.stderr[-3000:]}"
    told = json.loads(done.stdout)
    assert told["inputs"] == INPUTS
    assert told["grown_bytes"] < 8 * MIB
    # the inputs reach what they are meant to reach
    assert {"OK", "CANCELLED", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "INTERNAL"} <= set(told["finished"])
    assert (
        min(told["came"]["held"], told["came"]["closed by the door"], told["came"]["cut by the client"]) > INPUTS // 50
    )


def load(door: DoorProcess, method: str, calls: int, connections: int, body: Path) -> None:
    command = ["h2load", "-n", str(calls), "-c", str(connections), "-m", "32", "-d", str(body)]
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    subprocess.run(
        [*command, *headers, f"http://127.0.0.1:{door.port}{path(method)}"],
        capture_output=True,
        timeout=900,
        check=True,
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind == "native"])
@pytest.mark.parametrize("method", ["ManyBatch", "Echo", "Fail", "Raw", "Nothing"])
@pytest.mark.timeout(60 + LEAK_CALLS // 1000)
def test_memory_stays_flat_over_many_calls(kind: str, method: str, tmp_path: Path) -> None:
    """Half of the calls to settle, the other half must add nothing: a leak of 64 bytes a call would show."""
    body = tmp_path / "body"
    request = {"Fail": b"5 not here", "Raw": b"3 100"}.get(method, b"x" * 200)
    body.write_bytes(b"\0" + len(request).to_bytes(4, "big") + request)
    with DoorProcess(kind) as door:
        for _ in range(2):  # fresh connections each time
            load(door, method, LEAK_CALLS // 4, 20, body)
        settled = door.state()["resident_bytes"]
        for _ in range(2):
            load(door, method, LEAK_CALLS // 4, 20, body)
        state = door.state()
    assert state["resident_bytes"] - settled < LEAK_CALLS // 2 * 64
    assert state["in_flight"] == 0
