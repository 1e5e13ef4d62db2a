"""Cores decide and do nothing else: values and a time in, values or actions out.

A core says so in the docstring of its module, with the word Core. It imports no clock, randomness, log, thread,
loop or wire, and has no coroutine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN = frozenset(
    {"asyncio", "concurrent", "grpc", "logging", "multiprocessing", "random", "secrets", "selectors", "signal"}
    | {"socket", "subprocess", "threading", "time", "uvloop"}
)

KNOWN = frozenset(
    {
        "broker/delivery.py",
        "broker/filters.py",
        "broker/groups.py",
        "broker/topics.py",
        "cli/restarts.py",
        "nameserver/registry.py",
        "runtime/clients.py",
        "runtime/client_settings.py",
        "runtime/routes.py",
        "storage/recovery.py",
        "storage/retention.py",
    }
)
"""Cores whatever their docstrings say; the word brings further ones under the rule."""


def cores() -> Iterator[Path]:
    for path in sorted([*ROOT.glob("*/src/razzo/*/*.py"), *ROOT.glob("services/*/src/razzo/*/*.py")]):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        marked = "Core:" in docstring or "Core." in docstring or "(a core:" in docstring
        if marked or f"{path.parent.name}/{path.name}" in KNOWN:
            yield path


def breaches(tree: ast.Module) -> Iterator[str]:
    """What a core may not have, with its line."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield f"line {node.lineno}: a coroutine"
        for name in names:
            if name.partition(".")[0] in FORBIDDEN:
                yield f"line {node.lineno}: imports {name}"


def test_the_known_cores_are_there() -> None:
    assert {f"{path.parent.name}/{path.name}" for path in cores()} >= KNOWN


@pytest.mark.parametrize("path", list(cores()), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_core_only_decides(path: Path) -> None:
    assert list(breaches(ast.parse(path.read_text()))) == []


def test_a_breach_is_seen() -> None:
    source = "import time\nfrom asyncio import sleep\nasync def f():\n    await sleep(1)\n"
    assert len(list(breaches(ast.parse(source)))) == 4
