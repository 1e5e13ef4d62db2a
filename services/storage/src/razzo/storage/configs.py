"""config/*.json: tolerant reading of what RocketMQ writes, atomic writing with a .bak (section 1.1).

Reading: `<name>.json`, and `<name>.json.bak` when the first is missing, empty or no JSON. fastjson writes integer map
keys bare (`{0:12}`); outside of strings such a key is quoted before parsing.
Writing: the old file becomes .bak, the new one takes its place; at no moment are both missing or half.
"""

import json
import re
from pathlib import Path
from typing import Any

from razzo.storage.files import FileLayer

# A string (skipped whole), or a bare integer that stands where a key stands: after { or , and before a colon.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])(\s*)(-?\d+)(\s*):')
NAME = re.compile(r"[A-Za-z0-9_.-]+")


def quote_bare_keys(text: str) -> str:
    """`{0:12, "a,1:2":3}` -> `{"0":12, "a,1:2":3}`."""
    return _TOKEN.sub(lambda m: m.group(0) if m.group(2) is None else f'{m.group(1)}"{m.group(2)}"{m.group(3)}:', text)


def parse(data: bytes) -> dict[str, Any] | None:
    """The object, or None when the bytes are empty or no JSON object."""
    try:
        value = json.loads(quote_bare_keys(data.decode("utf-8")))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class Configs:
    """One folder of JSON files."""

    def __init__(self, folder: Path, files: FileLayer) -> None:
        self._folder = folder
        self._files = files

    def load(self, name: str) -> dict[str, Any] | None:
        """The main file, else its .bak, else None."""
        for path in (self._path(name), self._backup(name)):
            if self._files.exists(path):
                value = parse(self._files.read(path))
                if value is not None:
                    return value
        return None

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Durable when it returns. DiskFull leaves the old file in place."""
        self._files.make_dirs(self._folder)
        path, temp = self._path(name), self._folder / f"{name}.json.tmp"
        self._files.write_new(temp, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode("utf-8"))
        self._files.reach("config.temp_written")
        # A broken main file must not push out the good backup it was restored from.
        if self._files.exists(path) and parse(self._files.read(path)) is not None:
            self._files.rename(path, self._backup(name))
            self._files.reach("config.backed_up")
        self._files.rename(temp, path)
        self._files.reach("config.renamed")
        self._files.sync_dir(self._folder)

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name) or name.startswith("."):
            raise ValueError(f"not a config name: {name!r}")
        return self._folder / f"{name}.json"

    def _backup(self, name: str) -> Path:
        return self._path(name).with_name(f"{name}.json.bak")
