"""The floors hold, and the linter that says so sees a breach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONTRACTS = HERE / "floors.toml"


def lint(sources: Path | None = None) -> tuple[int, str]:
    """Exit code and output of import-linter; `sources` goes before the installed members."""
    environment = dict(os.environ)
    if sources is not None:
        environment["PYTHONPATH"] = str(sources)
    program = "from importlinter.cli import lint_imports_command as main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--config", str(CONTRACTS), "--no-cache"],
        env=environment,
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    """All our Python sources as one tree, to be broken."""
    target = tmp_path / "src"
    built = shutil.ignore_patterns("__pycache__", "*.c")
    for razzo in sorted(ROOT.glob("*/src/razzo")) + sorted(ROOT.glob("services/*/src/razzo")):
        shutil.copytree(razzo, target / "razzo", dirs_exist_ok=True, ignore=built)
    shutil.copytree(ROOT / "proto/src/apache", target / "apache", ignore=built)
    return target


def test_arrows_go_down_only(copied_tree: Path) -> None:
    for sources in (None, copied_tree):
        code, output = lint(sources)
        assert code == 0, output


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("razzo/broker/settings.py", "import razzo.nameserver", "Floors"),
        ("razzo/nameserver/settings.py", "from razzo.storage import Store", "stores nothing"),
        ("razzo/storage/__init__.py", "import razzo.runtime", "Floors"),
        ("razzo/door/methods.py", "import razzo.broker", "Floors"),
        ("razzo/protocol/names.py", "from razzo.runtime import settings", "Floors"),
        ("razzo/protocol/codes.py", "import grpc", "free of wires"),
        ("razzo/cli/wire.py", "def late() -> None:\n    import razzo.runtime.settings", "command line"),
    ],
)
def test_a_breach_is_seen(copied_tree: Path, module: str, line: str, broken: str) -> None:
    with open(copied_tree / module, "a") as source:
        source.write(f"\n\n{line}\n")
    code, output = lint(copied_tree)
    assert code == 1, output
    assert any(broken in text and text.endswith("BROKEN") for text in output.splitlines()), output
    importer = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert importer in output.partition("Broken contracts")[2]
