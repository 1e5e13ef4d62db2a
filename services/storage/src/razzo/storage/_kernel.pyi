"""Types of the compiled kernel; its own docstrings say what things mean."""

from collections.abc import Buffer, Iterable, Sequence
