"""Which gRPC door the clusters of these tests use: the product's default, or the one RAZZO_TEST_DOOR names."""

from __future__ import annotations

import os

VARIABLE = "RAZZO_TEST_DOOR"


def door_flags() -> list[str]:
    """Flags of `razzo up`; none for the default door."""
    door = os.environ.get(VARIABLE, "")
    return [text for service in ("nameserver", "broker") if door for text in ("--set", f"{service}.door={door}")]
