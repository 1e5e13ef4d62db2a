"""Who this broker is, kept in its data directory: the name that handles and routes carry, and the handles' secret."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

from razzo.broker.handles import load_or_make_secret
from razzo.protocol.limits import BROKER_NAME_BYTES_MAX
from razzo.runtime.lifecycle import StartFailed

NAME_FILE = Path("config/razzo/broker.name")
SECRET_FILE = Path("config/razzo/handle.key")


class Identity(NamedTuple):
    name: str
    secret: bytes


def load(root: Path, wanted_name: str) -> Identity:
    """The identity of the data directory, made at the first start. StartFailed when it is another broker's."""
    name = _name(root / NAME_FILE, wanted_name)
    try:
        return Identity(name, load_or_make_secret(root / SECRET_FILE))
    except ValueError as error:
        raise StartFailed(str(error)) from error


def _name(path: Path, wanted: str) -> str:
    if path.exists():
        kept = path.read_text().strip()
        if wanted and wanted != kept:
            raise StartFailed(
                f"the data directory belongs to broker {kept!r}, not to {wanted!r}: handles and routes name it"
            )
        return kept
    name = wanted or socket.gethostname()
    if not 0 < len(name.encode()) <= BROKER_NAME_BYTES_MAX or not name.isprintable():
        raise StartFailed(f"{name!r} cannot be a broker's name: 1 to {BROKER_NAME_BYTES_MAX} printable bytes")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    with open(draft, "w") as out:
        out.write(name + "\n")
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
    return name
