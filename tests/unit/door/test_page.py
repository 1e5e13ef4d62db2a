"""The table of bounds in docs/door.md is DoorLimits."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from razzo.door.server import DoorLimits

PAGE = Path(__file__).parents[3] / "docs" / "door.md"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def test_the_page_names_every_bound_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) ?([KMG]iB|) \|", PAGE.read_text(), re.MULTILINE)
    told = {name: int(number.replace(",", "")) * UNITS[unit] for name, number, unit in rows}
    assert told == {field.name: field.default for field in dataclasses.fields(DoorLimits)}
