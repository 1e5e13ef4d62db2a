"""The `rocketmq` crate of rocketmq-clients/rust against a running cluster, in plaintext: it has no TLS settings yet.

Version 5.0.0, the newest released, has a producer and a simple consumer and no push consumer. Its receipts tell no
offset. tonic refuses answers over 4 MiB, so the largest body leaves room for what stands around it.

Its build takes minutes, so this runs when ``RAZZO_TEST_RUST`` is set (``make test-clients`` does).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from official import build
from official.exchange import Client
from official.manifest import NODE_BODY_BYTES_MAX

if os.environ.get("RAZZO_TEST_RUST"):

    def test_rust_client(exchanged: Callable[..., None]) -> None:
        client = Client(
            "rust",
            build.rust(),
            tells_offset=False,
            born_resolution_ms=1_000,
            receipt_tells_offset=False,
            modes=("simple",),
        )
        exchanged(client, seed=20267, largest_bytes=NODE_BODY_BYTES_MAX)
