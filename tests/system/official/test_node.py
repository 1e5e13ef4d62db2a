"""rocketmq-client-nodejs against a running cluster. Its default is plaintext.

grpc-js refuses answers over 4 MiB, so the largest body the client can receive leaves room for what stands around it.
"""

from __future__ import annotations

from collections.abc import Callable

from official import build
from official.exchange import Client
from official.manifest import NODE_BODY_BYTES_MAX


def test_node_client(exchanged: Callable[..., None]) -> None:
    exchanged(Client("node", build.node()), seed=20266, largest_bytes=NODE_BODY_BYTES_MAX)
