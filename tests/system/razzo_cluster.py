"""A Razzo cluster for system tests: the real `razzo up` with real child processes on free ports."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

T = TypeVar("T")

COMMANDS = Path(sys.executable).parent
"""Where the console scripts of the environment under test are."""

POLL_S = 0.02
LOG_TAIL_BYTES = 6_000


class ClusterFailed(AssertionError):
    """`razzo up` did not do what was asked; the message holds its own words and the ends of its services' logs."""


class AdminResult(NamedTuple):
    """What one run of `razzo admin` left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def wait_until(condition: Callable[[], T], timeout_s: float = 10.0, message: str = "") -> T:
    """The first truthy value of `condition`; AssertionError when there is none within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {message or condition!r}")
        time.sleep(POLL_S)


def is_running(pid: int) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Cluster:
    """One data directory and, between `start` and `stop`, one `razzo up` that serves it."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        flush: str = "async",
        auto_create_topics: bool = False,
        restarts: int = 0,
        log_level: str = "info",
        extra: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.ready: dict[str, Any] = {}
        self._port = port
        self._options = ["--flush", flush, "--restarts", str(restarts), "--log-level", log_level]
        if auto_create_topics:
            self._options.append("--auto-create-topics")
        self._options += extra
        self._restarts = restarts
        self._up: subprocess.Popen[bytes] | None = None
        self._unread = b""

    # --- what it is

    @property
    def endpoint(self) -> str:
        return str(self.ready["endpoint"])

    @property
    def tls_endpoint(self) -> str:
        return str(self.ready["tls_endpoint"])

    @property
    def running(self) -> bool:
        return self._up is not None and self._up.poll() is None

    def pid(self, service: str) -> int:
        return int(self.ready["services"][service]["pid"])

    @property
    def up_pid(self) -> int:
        return int(self.ready["pid"])

    def log(self, service: str) -> str:
        path = self.data / "logs" / f"{service}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- life

    def start(self, timeout_s: float = 30.0) -> Self:
        """Starts `razzo up` and waits for its ready line."""
        assert not self.running, "already started"
        self.data.mkdir(parents=True, exist_ok=True)
        command = [str(COMMANDS / "razzo"), "up", "--json", "--data", str(self.data), "--port", str(self._port)]
        with open(self.data / "up.stderr", "ab") as errors:
            self._up = subprocess.Popen(
                command + self._options,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._unread = b""
        self.ready = self._event("ready", timeout_s)
        self._port = int(self.endpoint.rpartition(":")[2])
        return self

    def stop(self, timeout_s: float = 30.0) -> int:
        """Ctrl-C; the exit code of `razzo up`."""
        up = self._require_up()
        up.send_signal(signal.SIGINT)
        return self._wait_exit(timeout_s)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Waits until `razzo up` ends by itself; its exit code."""
        return self._wait_exit(timeout_s)

    def stderr(self) -> str:
        """What every `razzo up` of this data directory has printed on standard error."""
        return (self.data / "up.stderr").read_text()

    def restart(self) -> None:
        code = self.stop()
        assert code == 0, self.describe(f"`razzo up` ended with {code} at a clean stop")
        self.start()

    def kill(self, timeout_s: float = 10.0) -> None:
        """SIGKILL to `razzo up`; returns when its children are gone too."""
        up = self._require_up()
        children = [self.pid(service) for service in self.ready["services"]]
        up.kill()
        self._wait_exit(timeout_s)
        wait_until(lambda: not any(map(is_running, children)), timeout_s, f"children {children} gone after kill -9")

    def kill_broker(self, timeout_s: float = 30.0) -> None:
        """SIGKILL to the broker; then either `razzo up` is gone (restarts=0) or has a new broker ready."""
        self.kill_service("broker", timeout_s)

    def kill_service(self, service: str, timeout_s: float = 30.0) -> None:
        """The same for any service."""
        os.kill(self.pid(service), signal.SIGKILL)
        if self._restarts:
            self.ready["services"][service] = self._event("restarted", timeout_s)["state"]
        else:
            self._wait_exit(timeout_s)

    def terminate(self) -> None:
        """Makes sure that nothing is left, whatever the state (the end of a fixture)."""
        if self._up is None:
            return
        if self._up.poll() is None:
            self._up.kill()
        self._up.wait(10)
        if self._up.stdout is not None:
            self._up.stdout.close()
        self._up = None

    # --- the command line

    def admin(self, *args: str, input: bytes | None = None, timeout_s: float = 20.0) -> AdminResult:
        """Runs `razzo admin --endpoint … --json ARGS`."""
        command = [str(COMMANDS / "razzo"), "admin", "--endpoint", self.endpoint, "--json", *args]
        done = subprocess.run(
            command,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return AdminResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def must(self, *args: str, input: bytes | None = None) -> Any:
        """Like `admin`, but anything except exit code 0 is a failure; the parsed JSON answer."""
        result = self.admin(*args, input=input)
        assert result.exit_code == 0, self.describe(f"razzo admin {' '.join(args)}: {result}")
        return result.json

    # --- inside

    def describe(self, what: str) -> str:
        """`what`, and the ends of everything that was logged."""
        parts = [what]
        for path in [self.data / "up.stderr", *sorted((self.data / "logs").glob("*.log"))]:
            with contextlib.suppress(FileNotFoundError):
                parts.append(f"--- {path}\n" + path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace"))
        return "\n".join(parts)

    def _require_up(self) -> subprocess.Popen[bytes]:
        assert self._up is not None, "not started"
        return self._up

    def _event(self, name: str, timeout_s: float) -> dict[str, Any]:
        """The next line with this event on the standard output of `razzo up`."""
        up = self._require_up()
        assert up.stdout is not None
        deadline = time.monotonic() + timeout_s
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                event = json.loads(line)
                if event["event"] == name:
                    return dict(event)
                continue
            if not select.select([up.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ClusterFailed(self.describe(f"`razzo up` did not say {name!r} within {timeout_s:g} s"))
            more = os.read(up.stdout.fileno(), 65536)
            if not more:
                code = self._wait_exit(10)
                raise ClusterFailed(self.describe(f"`razzo up` ended with {code} before it said {name!r}"))
            self._unread += more

    def _wait_exit(self, timeout_s: float) -> int:
        up = self._require_up()
        try:
            code = up.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ClusterFailed(self.describe(f"`razzo up` still runs after {timeout_s:g} s")) from None
        self.terminate()
        return code
