"""Puts the twin on the import path (importlib mode adds nothing by itself)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
