"""Puts this folder on the import path (the one above adds the twin), and the tests' folders in memory."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one.

    A random run syncs often, and nothing here asks what a power cut leaves.
    """
    with tempfile.TemporaryDirectory(prefix="razzo-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)
