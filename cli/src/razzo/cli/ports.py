"""Which TCP ports the services of `razzo up` get, and that they keep them over a restart."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

REMEMBERED = "ports.json"
"""In the data directory: clients that hold a route find the broker at the same port after a restart."""


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. OSError when `host` is no address of this machine."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # As servers do it: connections in TIME_WAIT do not count. SO_REUSEPORT is not set, so a listener that has it
        # set (grpcio's default) is seen too.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as refused:
            if refused.errno in (98, 13):  # EADDRINUSE, EACCES
                return False
            raise
    return True


def first_free(host: str, *wanted: int | None) -> int:
    """The first free port of `wanted`, or 0: the service then takes any and says which."""
    for port in wanted:
        if port and is_free(host, port):
            return port
    return 0


def recall(data: Path) -> dict[str, int]:
    """The ports used last time by name; empty when there was no last time or the file is damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, AttributeError):
        found = json.loads((data / REMEMBERED).read_text())
        return {str(name): int(port) for name, port in found.items()}
    return {}


def remember(data: Path, ports: Mapping[str, int]) -> None:
    """Keeps the ports for the next start. A lost write costs nothing but the same numbers."""
    path = data / REMEMBERED
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(dict(sorted(ports.items())), indent=1) + "\n")
    os.replace(fresh, path)
