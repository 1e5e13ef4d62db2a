"""rocketmq-clients/golang/v5 against a running cluster, in plaintext and over TLS, its default."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from official import build
from official.exchange import Client


@pytest.mark.parametrize(("tls", "seed"), [(False, 20264), (True, 20265)], ids=["plaintext", "TLS by default"])
def test_go_client(exchanged: Callable[..., None], tls: bool, seed: int) -> None:
    exchanged(Client("go", build.go()), tls=tls, seed=seed)
