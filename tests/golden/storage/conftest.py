"""Puts this folder on the import path, for golden_vectors.py, and the store pair (the folder above adds the twin)."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "model" / "storage")]
