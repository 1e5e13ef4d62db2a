"""The written-by-machine pages of docs/ are fresh, and the hand-written ones name only what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from razzo.cli.main import razzo

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["getting-started.md", "commands.md", "settings.md"]
HAND_WRITTEN = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/operations.md", "docs/compatibility.md"]


def test_pages_are_fresh(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts/reference.py"), str(tmp_path)], check=True)
    for page in PAGES:
        assert (ROOT / "docs" / page).read_text() == (tmp_path / page).read_text(), f"{page} is stale: make docs"


@pytest.mark.parametrize("service", ["nameserver", "broker"])
def test_the_settings_page_has_every_flag_of_the_help(service: str) -> None:
    command = str(Path(sys.executable).with_name(f"razzo-{service}"))
    help_text = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"^  (--[a-z0-9-]+)", help_text, re.MULTILINE)) - {"--help", "--config"}
    section = (ROOT / "docs/settings.md").read_text().partition(f"## `razzo-{service}`")[2].partition("\n## ")[0]
    assert flags == set(re.findall(r"^\| `(--[a-z0-9-]+)`", section, re.MULTILINE))
    assert len(flags) > 10


@pytest.mark.parametrize("page", [*HAND_WRITTEN, *(f"docs/{page}" for page in PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", HAND_WRITTEN)
def test_make_targets_and_commands_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    group = razzo.get_command(click.Context(razzo), "admin")
    assert isinstance(group, click.Group)
    assert set(re.findall(r"razzo admin ([a-z-]+)", text)) <= set(group.list_commands(click.Context(group)))
