"""rocketmq-python-client against a running cluster. Its default is plaintext; TLS would need a public certificate."""

from __future__ import annotations

from collections.abc import Callable

from official import build
from official.exchange import Client


def test_python_client(exchanged: Callable[..., None]) -> None:
    client = Client("python", build.python(), ordered_keys=False, tells_offset=False, born_resolution_ms=1_000)
    exchanged(client, seed=20261)
