"""Builds the client programs of `clients/` (once for each state of their sources, into .cache) and runs them.

Every program takes ``[--tls] [--drain] HOST:PORT``, runs its checks against the probe service and prints one JSON line
for each: ``{"check": name, "error": text or ""}``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

SOURCES = Path(__file__).parent / "clients"
CACHE = Path(__file__).parents[3] / ".cache" / "door-clients"
BUILD_S_MAX = 900
RUN_S_MAX = 120

LANGUAGES = os.environ.get("DOOR_CLIENTS", "go").split(",")
"""Languages of this run, from ``DOOR_CLIENTS=go,node,java,rust`` (``make test-clients`` runs all); all but Go take a
minute or more on a busy machine, and Rust's first build minutes."""


def _run(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        ["nice", "-n", "5", *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-3000:]} {done.stderr[-3000:]}"


def _build(language: str, folder: Path) -> list[str]:
    """Builds in `folder`, which holds a copy of the sources; the command that runs the program."""
    match language:
        case "go":
            _run(["go", "build", "-o", "client", "."], folder, GOFLAGS="-mod=readonly")
            return [str(folder / "client")]
        case "h2spec":  # no client of ours, but built like one
            package = "github.com/summerwind/h2spec/cmd/h2spec"
            _run(["go", "build", "-o", "h2spec", package], folder, GOFLAGS="-mod=readonly")
            return [str(folder / "h2spec")]
        case "node":
            _run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
            return ["node", str(folder / "client.mjs")]
        case "java":
            _run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"], folder)
            _run(["javac", "-d", "classes", "-cp", f"{folder}/lib/*", "Client.java"], folder)
            return ["java", "-XX:+UseSerialGC", "-Xmx512m", "-cp", f"{folder}/classes:{folder}/lib/*", "Client"]
        case "rust":
            # one target folder for all states of the sources: what they depend on is built once
            _run(["cargo", "build"], folder, CARGO_TARGET_DIR=str(CACHE / "rust-target"))
            shutil.copy(CACHE / "rust-target" / "debug" / "client", folder / "client")
            return [str(folder / "client")]
    raise ValueError(f"no client program in {language!r}")


def program(language: str) -> list[str]:
    """The command of a built program."""
    sources = sorted(file for file in (SOURCES / language).rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in sources:
        digest.update(str(file.relative_to(SOURCES)).encode() + b"\0" + file.read_bytes())
    folder = CACHE / f"{language}-{digest.hexdigest()[:16]}"
    command_file = folder / "command.json"
    if not command_file.exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SOURCES / language, folder)
        command_file.write_text(json.dumps(_build(language, folder)))
    command: list[str] = json.loads(command_file.read_text())
    return command


class Run:
    """One run of a program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, language: str, *arguments: str) -> Run:
        pipe = asyncio.subprocess.PIPE
        command = await asyncio.to_thread(program, language)
        return cls(await asyncio.create_subprocess_exec(*command, *arguments, stdin=pipe, stdout=pipe, stderr=pipe))

    async def checks(self) -> AsyncIterator[tuple[str, str]]:
        """Name and error of each check as it is done; AssertionError when the program fails otherwise."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.timeout(RUN_S_MAX):
            async for line in self._process.stdout:
                told = json.loads(line)
                yield told["check"], told["error"]
            complaint = await self._process.stderr.read()
            assert await self._process.wait() == 0, complaint.decode()[-3000:]

    async def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go on\n")
        await self._process.stdin.drain()

    def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
