"""Settings of the nameserver."""
# ruff: noqa: RUF009 - `setting` makes an immutable field, which is what the rule wants

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from razzo.nameserver.registry import BEAT_INTERVAL_MS, BROKER_EXPIRY_MS
from razzo.protocol.limits import CLIENT_EXPIRY_MS, QUEUES_PER_TOPIC_MAX
from razzo.runtime.addresses import AddressMode
from razzo.runtime.logs import LogLevel
from razzo.runtime.settings import setting


class DoorKind(Enum):
    NATIVE = "native"
    GRPCIO = "grpcio"


@dataclass(frozen=True, slots=True)
class NameserverSettings:
    """The nameserver: routes for clients, and their door when the brokers are out of reach."""

    service: ClassVar[str] = "nameserver"

    data: Path = setting(Path("razzo-data/nameserver"), "directory of the self-signed certificate, the only file kept")
    client_host: str = setting("0.0.0.0", "address to listen on for clients")
    client_port: int = setting(8081, "port for clients; 0 takes a free one", low=0, high=65535)
    client_tls_port: int = setting(
        0, "TLS port for clients, with the grpcio door only; 0 takes a free one", low=0, high=65535
    )
    peer_host: str = setting("0.0.0.0", "address to listen on for brokers")
    peer_port: int = setting(8082, "port for brokers; 0 takes a free one", low=0, high=65535)
    door: DoorKind = setting(DoorKind.NATIVE, "server of the client port: native serves plaintext and TLS on one port")
    client_tls: bool = setting(True, "serve TLS to clients, beside plaintext")
    tls_certificate: Path | None = setting(None, "PEM file with the certificate chain; empty makes a self-signed one")
    tls_private_key: Path | None = setting(None, "PEM file with the private key of the certificate")
    address_mode: AddressMode = setting(
        AddressMode.AUTO,
        "whose addresses routes name: direct the brokers' own, through the one the client dialled, auto decides by "
        "how the client came here",
    )
    advertise_host: str = setting("", "host that routes name when a client served through us says none")
    advertise_port: int = setting(0, "its port; 0 is the port listened on", low=0, high=65535)
    inside_hosts: tuple[str, ...] = setting(
        (), "names by which clients dial this nameserver that reach the brokers too: host, host:port or .suffix"
    )
    auto_create_topics: bool = setting(False, "make an unknown topic when a client asks for its route")
    auto_create_topic_queues: int = setting(
        4, "queues of such a topic on each broker", low=1, high=QUEUES_PER_TOPIC_MAX
    )
    admin_on_client_port: bool = setting(True, "serve razzo.v1.ClusterAdmin on the client port too")
    broker_expiry_ms: int = setting(
        BROKER_EXPIRY_MS, "a broker without a beat for this long is gone", unit="ms", low=1, high=3_600_000
    )
    scan_interval_ms: int = setting(
        10_000, "pause between two looks for silent brokers and clients", unit="ms", low=1, high=600_000
    )
    client_expiry_ms: int = setting(
        CLIENT_EXPIRY_MS, "a client without stream and heartbeat is forgotten then", unit="ms", low=1, high=3_600_000
    )
    settle_ms: int = setting(
        2_000,
        "after the start, a client that asks for an unknown topic waits this long for brokers to register",
        unit="ms",
        low=0,
        high=60_000,
    )
    stop_grace_ms: int = setting(
        3_000, "time that calls in flight get when the nameserver stops", unit="ms", low=0, high=25_000
    )
    reflection: bool = setting(False, "serve gRPC reflection on the peer port")
    log_level: LogLevel = setting(LogLevel.INFO, "lowest level that is logged")

    def __post_init__(self) -> None:
        if self.door is DoorKind.NATIVE and self.client_tls_port:
            raise ValueError("client_tls_port is of the grpcio door; the native one serves TLS on client_port")
        if (self.tls_certificate is None) != (self.tls_private_key is None):
            raise ValueError("tls_certificate and tls_private_key are given together or not at all")


assert BEAT_INTERVAL_MS < BROKER_EXPIRY_MS
