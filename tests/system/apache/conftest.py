"""Puts this folder, the storage tests' and the twin on the import path (importlib mode adds nothing by itself)."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "model"
sys.path[:0] = [str(HERE), str(HERE.parent / "storage"), str(MODEL), str(MODEL / "storage")]
