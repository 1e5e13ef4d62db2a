"""A `door.serve` process, seen from a test or the bench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

STOP_S_MAX = 20


def python_path() -> str:
    """For a process that runs a module of these tests; what is on the path already (a sanitized build) stays first."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[1])]))


class DoorProcess:
    """Started by `with`; ends with it. A crash shows as a non-zero `returncode` and an AssertionError of `state`."""

    def __init__(self, kind: str, **limits: float) -> None:
        command = [sys.executable, "-m", "door.serve", kind, *(f"{key}={value}" for key, value in limits.items())]
        environment = {**os.environ, "PYTHONPATH": python_path()}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.port: int = self._line()["port"]

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the door's process has ended with {self._process.wait(STOP_S_MAX)}"
        told: dict[str, Any] = json.loads(line)
        return told

    def state(self) -> dict[str, Any]:
        """Resident bytes, calls in flight and finished calls by method and status."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._line()

    def cpu_ns(self) -> int:
        """Nanoseconds of CPU that all its threads have used."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stop(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(STOP_S_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            code = self.stop()
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            code = self._process.wait()
        assert code == 0 or kind is not None, f"the door's process has ended with {code}"
