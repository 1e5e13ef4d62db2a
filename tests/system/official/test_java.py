"""rocketmq-client-java against a running cluster, in plaintext and over TLS, its default."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from official import build
from official.exchange import Client


@pytest.mark.parametrize(("tls", "seed"), [(False, 20262), (True, 20263)], ids=["plaintext", "TLS by default"])
def test_java_client(exchanged: Callable[..., None], tls: bool, seed: int) -> None:
    exchanged(Client("java", build.java(), ordered_keys=False), tls=tls, seed=seed)
