"""A running program of an official client: JSON lines out, `end_input` stops it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

CLOSE_TIMEOUT_S = 15.0
STDERR_TAIL_BYTES = 4_000

Line = dict[str, Any]


class ClientProcess:
    """Starts with the object, ends with `end_input` or the `with` block."""

    def __init__(self, name: str, command: Sequence[str], options: dict[str, str], home: Path) -> None:
        """`home` becomes the program's home directory: the official clients write their logs below it."""
        home.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.lines: list[Line] = []
        self._changed = threading.Condition()
        self._ended = False
        self._errors = home / "stderr"
        arguments = [text for option, value in options.items() for text in (f"--{option}", value)]
        command = list(command)
        if command[0] == "java":
            command.insert(1, f"-Duser.home={home}")
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=home,
                env={**os.environ, "HOME": str(home)},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def events(self, name: str) -> list[Line]:
        """All lines of one event so far."""
        with self._changed:
            return [line for line in self.lines if line["event"] == name]

    def wait(self, name: str, condition: Callable[[list[Line]], bool] = bool, timeout_s: float = 60.0) -> list[Line]:
        """The lines of an event as soon as `condition` holds for them; AssertionError with the program's words else."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                found = [line for line in self.lines if line["event"] == name]
                if condition(found):
                    return found
                failures = [line for line in self.lines if line["event"] == "error"]
                left = deadline - time.monotonic()
                if failures or self._ended or left <= 0:
                    why = failures or ("ended" if self._ended else f"not within {timeout_s:g} s")
                    raise AssertionError(self.describe(f"{self.name}: {name}: {why}; {len(found)} so far"))
                self._changed.wait(left)

    def end_input(self) -> None:
        """Asks it to close its client and to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait_exit(self) -> int:
        """Its exit code after `end_input`; 0 when all went well."""
        code = self._process.wait(CLOSE_TIMEOUT_S)
        self._reader.join(CLOSE_TIMEOUT_S)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(CLOSE_TIMEOUT_S)
        self._reader.join(CLOSE_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def describe(self, what: str) -> str:
        said = self._errors.read_bytes()[-STDERR_TAIL_BYTES:].decode(errors="replace")
        return f"{what}\n--- stderr of {self.name}\n{said}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if not text.startswith(b"{"):
                continue  # some clients print a banner
            line = json.loads(text)
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
