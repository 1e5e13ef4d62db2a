"""Puts this folder and the twin on the import path (importlib mode adds nothing by itself), and test folders in
memory.

A killed process leaves its page cache, so what these tests look at is the same on a disk and in memory; the syncs are
not what is tested, and on a disk they would be most of the time.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "model"
sys.path[:0] = [str(HERE), str(MODEL), str(MODEL / "storage")]

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def make_folder() -> Iterator[Callable[[], Path]]:
    """Makes empty folders that live as long as the session."""
    with tempfile.TemporaryDirectory(prefix="razzo-", dir=MEMORY if MEMORY.is_dir() else None) as top:
        yield lambda: Path(tempfile.mkdtemp(dir=top))


@pytest.fixture
def tmp_path(make_folder: Callable[[], Path]) -> Path:
    return make_folder()


@pytest.fixture
def interval() -> Iterator[Callable[[float], None]]:
    """Sets how often the interpreter switches threads, for one test."""
    before = sys.getswitchinterval()
    yield sys.setswitchinterval
    sys.setswitchinterval(before)
