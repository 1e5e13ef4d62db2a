"""The gRPC door for clients: one method table, served natively (nghttp2) or by grpc.aio."""

from __future__ import annotations

from razzo.door.methods import MethodTable
from razzo.door.observers import Observers
from razzo.door.server import DoorLimits, Server, TlsFiles

__all__ = ["DOORS", "open_server"]

DOORS = ("native", "grpcio")


def open_server(
    kind: str, table: MethodTable, limits: DoorLimits, tls: TlsFiles | None, observers: Observers | None = None
) -> Server:
    """A server of `table`, not started yet. ValueError for a kind that is not one of `DOORS`.

    ``native`` serves plaintext and TLS on one port, ``grpcio`` on two.
    """
    if kind == "native":
        from razzo.door.native import DoorServer

        return DoorServer(table, limits, tls, observers)
    if kind == "grpcio":
        from razzo.door.grpcio_mount import GrpcioServer

        return GrpcioServer(table, limits, tls, observers)
    raise ValueError(f"door is {kind!r}, must be one of {', '.join(DOORS)}")
