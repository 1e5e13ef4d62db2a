"""The committed stubs are what proto/generate.py writes from the committed .proto files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "proto" / "src"
WRITTEN_BY_HAND = {"well_known.py", "well_known.pyi", "py.typed"}


def generated(folder: Path) -> dict[str, bytes]:
    """Path below `folder` -> content, of everything that protoc wrote."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for part in ("apache/rocketmq/v2", "razzo/v1")
        for path in sorted((folder / part).iterdir())
        if path.is_file() and path.name not in WRITTEN_BY_HAND
    }


def test_committed_stubs_are_fresh(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "proto" / "generate.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    fresh, committed = generated(tmp_path), generated(SOURCE)
    assert sorted(fresh) == sorted(committed)
    stale = [name for name in fresh if fresh[name] != committed[name]]
    assert not stale, "run `python proto/generate.py`"
    assert len(fresh) >= 2 * 7 + 4


def test_sources_name_themselves_ours() -> None:
    """The public API is theirs, the words in the files are ours: no licence head or comment of another project."""
    for path in sorted((ROOT / "proto").glob("**/*.proto")):
        text = path.read_text()
        assert text.startswith("// "), path
        assert "Licensed to the Apache Software Foundation" not in text, path


def test_namespace_package_has_no_init() -> None:
    assert not (SOURCE / "razzo" / "__init__.py").exists()
    assert not (SOURCE / "apache" / "__init__.py").exists()
    assert not (SOURCE / "apache" / "rocketmq" / "__init__.py").exists()
