"""Rules that every file of ours keeps. Each rule has its test and, next to it, what it allows."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINES_MAX = 400
"""A file longer than this holds more than one thing."""

LONGER = {
    "tests/system/door/test_hardening.py": 440,
}
"""Files that may be longer, and how long; an entry that is no longer needed is an error too."""

FUNCTION_LINES_MAX = 70
LONGER_FUNCTIONS: dict[str, int] = {}
"""path:name -> lines."""

SOURCE_SUFFIXES = frozenset({".py", ".pyx", ".pxi", ".pxd", ".h"})

GENERATED = ("proto/src/apache/rocketmq/v2/", "proto/src/razzo/v1/")

PAUSE_ALLOWED = frozenset({"tests/system/razzo_cluster.py"})
"""wait_until polls there: the only pause of all tests."""

PAUSE_S_MAX = 0.1
"""A literal asyncio.sleep above it is a wait for time to pass, not for a condition."""


@functools.cache
def tracked() -> tuple[str, ...]:
    """What belongs to the repository: committed files and new ones that are not ignored, as paths from the root."""
    found = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted(name for name in found.stdout.split("\0") if name and (ROOT / name).is_file()))


def ours() -> Iterator[str]:
    """Source files that people wrote."""
    for name in tracked():
        if Path(name).suffix in SOURCE_SUFFIXES and not name.startswith(GENERATED):
            yield name


def python_trees(prefix: str = "") -> Iterator[tuple[str, ast.Module]]:
    for name in ours():
        if name.endswith(".py") and name.startswith(prefix):
            yield name, ast.parse((ROOT / name).read_text(), name)


def test_the_rules_see_the_sources() -> None:
    names = set(ours())
    assert {"cli/src/razzo/cli/main.py", "services/storage/src/razzo/storage/_kernel.pyx"} <= names
    assert not any(name.startswith(GENERATED) for name in names)


def test_razzo_is_a_namespace_package() -> None:
    """One __init__.py directly below any src/razzo hides all other members."""
    stray = [name for name in tracked() if re.search(r"(^|/)src/razzo/__init__\.pyi?$", name)]
    stray += [str(path) for path in ROOT.glob("*/src/razzo/__init__.py*")]
    stray += [str(path) for path in ROOT.glob("*/*/src/razzo/__init__.py*")]
    assert stray == []


def test_files_are_short() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in ours()}
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGER.get(name, LINES_MAX)}
    assert too_long == {}, f"more than {LINES_MAX} lines"
    needless = {
        name for name, lines in LONGER.items() if lengths.get(name, 0) <= LINES_MAX or lengths[name] < lines - 50
    }
    assert needless == set(), "needless allowances"


def test_functions_are_short() -> None:
    lengths = {
        f"{name}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for name, tree in python_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    too_long = {key: lines for key, lines in lengths.items() if lines > LONGER_FUNCTIONS.get(key, FUNCTION_LINES_MAX)}
    assert too_long == {}, f"more than {FUNCTION_LINES_MAX} lines"
    assert all(lengths.get(key, 0) > FUNCTION_LINES_MAX for key in LONGER_FUNCTIONS), "needless allowances"


def pauses(tree: ast.Module) -> Iterator[int]:
    """Lines that wait for time to pass."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and any(one.name == "sleep" for one in node.names)
        ):
            yield node.lineno
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sleep":
            continue
        whose = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        seconds = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        literal_pause = isinstance(seconds, int | float) and seconds > PAUSE_S_MAX
        if whose == "time" or (whose == "asyncio" and literal_pause):
            yield node.lineno


def test_tests_do_not_sleep() -> None:
    found = [
        f"{name}:{line}" for name, tree in python_trees("tests/") if name not in PAUSE_ALLOWED for line in pauses(tree)
    ]
    assert found == [], "wait for a condition with a deadline: razzo_cluster.wait_until, or an event"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\ntime.sleep(1)", [2]),
        ("from time import sleep", [1]),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0.5)", [3]),
        ("import asyncio\nasync def f(s):\n    await asyncio.sleep(0)\n    await asyncio.sleep(s)", []),
    ],
)
def test_a_pause_is_seen(source: str, lines: list[int]) -> None:
    assert list(pauses(ast.parse(source))) == lines


def test_tests_are_not_skipped() -> None:
    """A test that cannot run here installs what it needs, or is not in the gate."""
    marks = re.compile(r"pytest\.(mark\.(skip|skipif|xfail)\b|skip\(|xfail\(|importorskip\()")
    found = [
        name
        for name, _ in python_trees("tests/")
        if not name.startswith("tests/arch/") and marks.search((ROOT / name).read_text())
    ]
    assert found == []


NO_SUCH_MODULE = re.compile(r"(^|/)(utils?|common|helpers?|misc)(/|\.py$)")


def test_no_drawers() -> None:
    assert [name for name in ours() if NO_SUCH_MODULE.search(name)] == []


def test_no_trace_of_the_machine() -> None:
    """No path of the machine it was written on, and no host of a package registry (uv's lock file apart)."""
    # Put together here, so that this file does not name them either.
    hosts = [
        ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("crates", "io"))
    ]
    hosts += [".".join(parts) for parts in (("maven", "org"), ("proxy", "golang", "org"), ("debian", "org"))]
    traces = re.compile("|".join(map(re.escape, [*hosts, *(f"/{folder}/" for folder in ("work", "root", "home"))])))
    found = []
    for name in tracked():
        if name == "uv.lock":
            continue
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {match.group()}" for match in traces.finditer(text)]
    assert found == []
