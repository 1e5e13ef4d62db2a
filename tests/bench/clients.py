"""The load generators: h2load, a Go program over bare gRPC, and the official Java client; how they are built and told.

Built once per state of their sources into `.cache/bench`. A program does one step for each line it is given and answers
with one JSON line, so that the caller can read the server's clocks between steps.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "bench"
BUILD_S_MAX = 600
CLIENT_HEADERS = (
    ("x-mq-client-id", "bench@1@0@1"),
    ("x-mq-language", "JAVA"),
    ("x-mq-protocol", "v2"),
    ("x-mq-client-version", "5.2.1"),
    ("x-mq-date-time", "20261121T000000Z"),
    ("x-mq-request-id", "1f0c7d2e-bench"),
    ("user-agent", "grpc-java-netty/1.71.0"),
)
GRPC_HEADERS = (("content-type", "application/grpc"), ("te", "trailers"))


class Load(NamedTuple):
    """One h2load run: completed calls, wall seconds, latencies in milliseconds."""

    calls: int
    seconds: float
    p50_ms: float
    p99_ms: float


def h2load(address: str, path: str, request: bytes, streams: int, *, seconds: int = 0, calls: int = 0) -> Load:
    """Repeats one framed request on one connection with `streams` calls under way, for `seconds` or `calls`."""
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(request)
        length = ["-D", str(seconds)] if seconds else ["-n", str(calls)]
        command = ["h2load", *length, "-c1", "-m", str(streams), "-w20", "-W20", "-d", str(body)]
        command += ["--log-file", str(log)]
        for key, value in (*CLIENT_HEADERS, *GRPC_HEADERS):
            command += ["-H", f"{key}: {value}"]
        done = subprocess.run([*command, f"http://{address}{path}"], capture_output=True, text=True, check=True)
        found = re.search(r"requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded", done.stdout)
        took = re.search(r"finished in ([\d.]+)(us|ms|s|m)", done.stdout)
        if found is None or took is None:
            raise RuntimeError(f"h2load printed no result:\n{done.stdout}{done.stderr}")
        # With -D the log lacks the last calls; a row is: start (us since the epoch), status, duration (us).
        with open(log) as rows:
            micros = sorted(int(row.rsplit("\t", 1)[1]) for row in rows)
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[took[2]]
    middle, late = (micros[int(len(micros) * part)] / 1e3 if micros else 0.0 for part in (0.5, 0.99))
    return Load(int(found[1]), float(seconds) if seconds else float(took[1]) * scale, middle, late)


class Program:
    """A running load generator; `step` tells it one line and waits for its answer."""

    def __init__(self, command: Sequence[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._errors = home / "stderr"
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=home,
                env={**os.environ, "HOME": str(home)},
                text=True,
            )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def step(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.startswith("{"):
                return dict(json.loads(text))
        said = self._errors.read_text(errors="replace")[-4_000:]
        raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}:\n{said}")


def java(home: Path, **options: object) -> Program:
    """BenchClient.java: the official client, with the JVM's usual compilers."""
    built = _built("java", ("pom.xml", "src"), [
        "mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"])  # fmt: skip
    classes = f"{built / 'target' / 'classes'}:{built / 'lib'}/*"
    command = ["java", "-Xmx1g", f"-Duser.home={home}", "-cp", classes, "razzo.BenchClient"]
    return Program([*command, *_flags(options)], home)


def go(home: Path, **options: object) -> Program:
    """go/main.go: receive and acknowledge with many calls under way."""
    built = _built("go", ("go.mod", "go.sum", "main.go"), ["go", "build", "-mod=mod", "-o", "client", "."])
    return Program([str(built / "client"), *_flags(options)], home)


def _flags(options: dict[str, object]) -> list[str]:
    return [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def _built(language: str, sources: tuple[str, ...], command: list[str]) -> Path:
    """The folder with the program built from the sources as they are now."""
    digest = hashlib.sha256()
    for source in (HERE / language / name for name in sources):
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file():
                digest.update(path.read_bytes())
    home = CACHE / f"{language}-{digest.hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{language}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            work = home.with_name(home.name + ".building")
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(HERE / language, work)
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} in {work}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
            work.rename(home)
    return home
