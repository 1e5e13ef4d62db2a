"""What a server of a method table looks like from outside, and the settings that both kinds of server obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from razzo.door.observers import MethodCounts

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a server. They are read again when they change, without a restart.

    `client_ca` set: clients must present a certificate signed by it (mutual TLS).
    `compulsory`: plaintext is not served.
    """

    certificate: Path
    private_key: Path
    client_ca: Path | None = None
    compulsory: bool = False


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Every bound of a door, and what reaching it means."""

    #: largest request message, bytes; RESOURCE_EXHAUSTED above. Apache's door takes 130 MiB.
    request_bytes_max: int = 130 * MIB
    #: largest answer message, bytes; RESOURCE_EXHAUSTED above
    response_bytes_max: int = 130 * MIB
    #: open connections; the next one is closed at once
    connections_max: int = 10_000
    #: concurrent streams a connection (SETTINGS_MAX_CONCURRENT_STREAMS); the next stream is refused
    streams_per_connection_max: int = 4_096
    #: bytes of request headers of one call, names and values; RESOURCE_EXHAUSTED above
    header_bytes_max: int = 16 * 1024
    #: request bytes buffered for incomplete calls of one connection; window updates stop above
    buffered_request_bytes_max: int = 16 * MIB + 130 * MIB
    #: request bytes buffered for incomplete calls of all connections; RESOURCE_EXHAUSTED above
    buffered_total_bytes_max: int = 1024 * MIB
    #: unsent answer bytes of one stream; a handler's `write` waits above
    unsent_stream_bytes_max: int = 1 * MIB
    #: unsent answer bytes of one connection; reading from it stops above
    unsent_connection_bytes_max: int = 8 * MIB
    #: calls handed to a batch handler at once; the rest come in the next batch
    batch_calls_max: int = 1_024
    #: seconds without any byte before an idle connection is closed (GOAWAY)
    idle_s: float = 120.0
    #: seconds a connection may take for its TLS handshake and HTTP/2 preface
    handshake_s: float = 10.0
    #: seconds between pings of ours on a connection that has calls open but is silent
    keepalive_s: float = 60.0
    #: client pings a second, sustained, that come without an answer of ours in between; GOAWAY ENHANCE_YOUR_CALM above
    pings_per_s_max: int = 100
    #: stream resets a second, sustained (rapid reset); GOAWAY above
    resets_per_s_max: int = 1_000


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a started server listens. One port for both kinds when the server tells them apart itself."""

    host: str
    plain_port: int
    tls_port: int | None


class Server(Protocol):
    async def start(self, host: str, port: int, tls_port: int | None = None) -> Bound:
        """Listens; port 0 picks a free one. OSError when the address is taken."""

    async def stop(self, grace_s: float) -> None:
        """No new calls (GOAWAY); calls in flight get `grace_s` seconds to finish, then are cancelled."""

    def method_counts(self) -> Mapping[str, MethodCounts]:
        """Counters by method path, a snapshot; empty when `Observers.count_calls` is off."""
