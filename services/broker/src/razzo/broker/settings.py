"""Settings of the broker; flags, environment (``RAZZO_BROKER_<NAME>``), TOML file and ``--help`` derive from them."""
# ruff: noqa: RUF009 - `setting` makes an immutable field, which is what the rule wants

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from razzo.protocol import limits
from razzo.runtime.logs import LogLevel
from razzo.runtime.settings import setting

PORT_MAX = 65_535


class FlushChoice(Enum):
    """When a send is answered."""

    SYNC = "sync"
    ASYNC = "async"


class DoorKind(Enum):
    NATIVE = "native"
    GRPCIO = "grpcio"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Razzo broker: stores messages and hands them to consumers."""

    service: ClassVar[str] = "broker"

    data: Path = setting(Path("razzo-data/broker"), "directory of the store and of the broker's own files")
    cluster_name: str = setting("DefaultCluster", "cluster this broker belongs to")
    broker_name: str = setting(
        "", "stable name in routes and handles; empty: the one kept in the data directory, at first the host's"
    )
    broker_id: int = setting(0, "number in the broker group; 0 is the master", low=0, high=0)
    nameservers: tuple[str, ...] = setting((), "host:port of every nameserver's peer port")

    client_host: str = setting("127.0.0.1", "address the client port listens on")
    client_port: int = setting(10911, "client port; 0: any free one", low=0, high=PORT_MAX)
    client_tls_port: int = setting(
        0,
        "TLS client port of the grpcio door; 0: any free one; the native door serves TLS on the client port",
        low=0,
        high=PORT_MAX,
    )
    client_tls: bool = setting(True, "serve TLS to clients beside plaintext")
    tls_certificate: Path | None = setting(None, "PEM certificate chain; empty: a self-signed one is made")
    tls_private_key: Path | None = setting(None, "PEM private key of the certificate")
    advertise_host: str = setting("", "host that routes name for clients; empty: the client host, or this host's name")
    peer_host: str = setting("127.0.0.1", "address the peer port listens on")
    peer_port: int = setting(
        10912, "peer port: administration, forwarded calls, health; 0: any free one", low=0, high=PORT_MAX
    )
    peer_advertise_host: str = setting("", "host that other nodes dial; empty: like the client's")
    door: DoorKind = setting(DoorKind.NATIVE, "server of the client port")

    flush_mode: FlushChoice = setting(FlushChoice.SYNC, "answer a send when it is on disk (sync) or written (async)")
    flush_interval_ms: int = setting(500, "between flushes in async mode", unit="ms", low=10, high=60_000)
    flush_timeout_ms: int = setting(
        5_000, "wait for the disk before a send is answered as stored but not safe", unit="ms", low=100, high=60_000
    )
    commit_log_file_bytes: int = setting(1 << 30, "size of a commit log file", unit="bytes", low=1 << 16, high=1 << 30)
    consume_queue_file_units: int = setting(300_000, "messages of one consume queue file", low=16, high=300_000)
    index_slots: int = setting(5_000_000, "hash slots of a key index file", low=16, high=5_000_000)
    index_units: int = setting(20_000_000, "entries of a key index file", low=16, high=20_000_000)
    retention_hours: int = setting(72, "age at which commit log files are deleted", unit="hours", low=1)
    retention_interval_s: float = setting(10.0, "between looks at what is old", unit="s", low=0.1, high=3600)

    auto_create_topics: bool = setting(False, "make a topic when a client names one that does not exist")
    auto_create_topic_queues: int = setting(
        4, "queues of a topic made that way", low=1, high=limits.QUEUES_PER_TOPIC_MAX
    )
    auto_create_groups: bool = setting(True, "make a consumer group when a client names one that does not exist")
    topics_max: int = setting(20_000, "topics; the next one is refused", low=1)
    groups_max: int = setting(20_000, "consumer groups; the next one is refused", low=1)

    waiting_receives_max: int = setting(
        20_000, "receives that wait for messages; the next one is told TOO_MANY_REQUESTS", low=1
    )
    waiting_receives_per_queue_max: int = setting(
        limits.WAITING_POLLS_PER_QUEUE_MAX, "the same, of one consumer group on one topic", low=1
    )
    waiting_sends_max: int = setting(
        20_000, "messages that wait for the disk; further sends are told TOO_MANY_REQUESTS", low=1
    )
    leases_per_queue_max: int = setting(
        20_000, "messages of one queue that a consumer group has out; no new ones are handed out above", low=1
    )

    client_expiry_ms: int = setting(
        limits.CLIENT_EXPIRY_MS,
        "silence after which a client without a Telemetry stream is gone",
        unit="ms",
        low=100,
        high=3_600_000,
    )
    beat_interval_s: float = setting(
        30.0, "between beats to a nameserver when nothing changed", unit="s", low=0.1, high=60
    )
    register_timeout_s: float = setting(
        5.0,
        "wait for the nameservers to know a changed topic before its creation is answered",
        unit="s",
        low=0.1,
        high=60,
    )
    snapshot_records: int = setting(20_000, "state records between two snapshots of positions and leases", low=1)
    position_file_interval_s: float = setting(5.0, "between writes of consumerOffset.json", unit="s", low=0.1, high=600)
    stop_grace_s: float = setting(1.0, "time that calls in work get at a stop", unit="s", low=0, high=60)
    log_level: LogLevel = setting(LogLevel.INFO, "least level that is logged")

    def __post_init__(self) -> None:
        for nameserver in self.nameservers:
            host, colon, port = nameserver.rpartition(":")
            if not colon or not host or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
                raise ValueError(f"nameservers has {nameserver!r}, must be host:port")

    @property
    def client_address(self) -> str:
        """The host that routes name."""
        return self.advertise_host or _dialable(self.client_host)

    @property
    def peer_address(self) -> str:
        """The host under which other nodes reach the peer port."""
        return self.peer_advertise_host or self.advertise_host or _dialable(self.peer_host)


def _dialable(listen_host: str) -> str:
    return socket.gethostname() if listen_host in ("", "0.0.0.0", "::") else listen_host
