"""Builds the programs of the official clients, once per state of their sources, in the repository's cache.

Each builder answers the command that runs the program. The registries are asked only when something changed; all else
comes from `.cache/official`. Several test processes may ask at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[2] / ".cache" / "official"

BUILD_TIMEOUT_S = 900
ERROR_TAIL_CHARS = 4_000

# A small heap and the first compiler tier: the programs live for seconds.
JAVA_OPTIONS = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def java() -> list[str]:
    home = _built("java", ("pom.xml", "src"), _build_java)
    classes = os.pathsep.join([str(home / "target" / "classes"), str(home / "lib" / "*")])
    return ["java", *JAVA_OPTIONS, "-cp", classes, "razzo.OfficialClient"]


def go() -> list[str]:
    return [str(_built("go", ("go.mod", "go.sum", "main.go"), _build_go) / "client")]


def node() -> list[str]:
    return ["node", str(_built("node", ("package.json", "package-lock.json", "main.mjs"), _build_node) / "main.mjs")]


def rust() -> list[str]:
    return [str(_built("rust", ("Cargo.toml", "src"), _build_rust) / "client")]


def python() -> list[str]:
    """Nothing to build: the package is a development dependency of the workspace."""
    return [sys.executable, str(HERE / "python" / "main.py")]


def _build_java(home: Path) -> None:
    _run(["mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"], home)


def _build_go(home: Path) -> None:
    _run(["go", "build", "-o", "client", "."], home)


def _build_node(home: Path) -> None:
    _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], home)


def _build_rust(home: Path) -> None:
    """One target folder for all states of the sources: what they depend on is built once, in minutes."""
    _run(["cargo", "build", "--target-dir", str(CACHE / "rust-target")], home)
    shutil.copy(CACHE / "rust-target" / "debug" / "official-client", home / "client")


def _built(language: str, sources: tuple[str, ...], builder: Callable[[Path], None]) -> Path:
    """The folder with the program built from the sources as they are now."""
    home = CACHE / f"{language}-{_digest(HERE / language, sources)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{language}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            work = home.with_name(home.name + ".building")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            for name in sources:
                source = HERE / language / name
                copy = shutil.copytree if source.is_dir() else shutil.copy
                copy(source, work / name)
            builder(work)
            work.rename(home)
    return home


def _digest(folder: Path, sources: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name in sources:
        source = folder / name
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file():
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-ERROR_TAIL_CHARS:]
        raise RuntimeError(f"`{' '.join(command)}` in {folder} ended with {done.returncode}:\n{said}")


if __name__ == "__main__":
    for build in (java, go, node, rust, python):
        print(" ".join(build()))
