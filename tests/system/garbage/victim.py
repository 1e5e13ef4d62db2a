"""A cluster under attack: its ports, and whether it is untouched."""

from __future__ import annotations

import socket
import time
import zlib
from pathlib import Path
from typing import Any

from official.raw_client import RawClient
from razzo_cluster import Cluster, is_running

from apache.rocketmq.v2 import definition_pb2 as d

TOPIC = "garbage"
CLOSE_TIMEOUT_S = 10.0
# The logs of these tests stay far below it.
LOG_BYTES_LOOKED_AT = 16 << 20


class Victim:
    """A running cluster with one topic; `assert_well` after every attack."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.must("create-topic", TOPIC, "--queues", "2")
        self.pids = {name: int(service["pid"]) for name, service in cluster.ready["services"].items()}
        self.ports = ports_of(cluster.ready)
        self.log: dict[str, int] = {}
        self.assert_serving()
        self.remember_log()

    @property
    def native_door(self) -> bool:
        """Whether clients are served by razzo.door's own server, which needs one port for plaintext and TLS."""
        return self.cluster.endpoint == self.cluster.tls_endpoint

    def remember_log(self) -> None:
        """From here on the log should be as it is now."""
        self.log = self.log_checksums()

    def log_checksums(self) -> dict[str, int]:
        """CRC-32 of the written part of every commit-log file."""
        files = sorted(self.cluster.data.glob("**/commitlog/*"))
        assert files, f"no commit log below {self.cluster.data}"
        return {path.name: checksum(path) for path in files}

    def assert_well(self) -> None:
        """Same processes, same log, and a normal client is served."""
        dead = [name for name, pid in self.pids.items() if not is_running(pid)]
        assert not dead, self.cluster.describe(f"died: {dead}")
        before, after = self.log, self.log_checksums()
        self.assert_serving()
        self.remember_log()
        assert before == after, "garbage reached the log"

    def assert_serving(self) -> None:
        with RawClient(self.cluster.endpoint) as raw:
            answer = raw.send(TOPIC, b"still here")
        assert answer.status.code == d.OK, answer.status


def checksum(path: Path) -> int:
    with open(path, "rb") as file:
        return zlib.crc32(file.read(LOG_BYTES_LOOKED_AT))


def ports_of(ready: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Every address in the ready line, by service and purpose ("broker peer.port")."""
    found: dict[str, tuple[str, int]] = {}
    for service, facts in ready["services"].items():
        for purpose, address in facts.items():
            if not isinstance(address, dict):
                continue
            for kind in ("port", "tls_port"):
                if address.get(kind):
                    found[f"{service} {purpose}.{kind}"] = (address["host"], address[kind])
    return found


def throw(address: tuple[str, int], payload: bytes) -> bytes:
    """Sends everything, then no more; what came back until the server closed. AssertionError when it never closes."""
    received = bytearray()
    deadline = time.monotonic() + CLOSE_TIMEOUT_S
    with socket.create_connection(address, timeout=CLOSE_TIMEOUT_S) as connection:
        try:
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            return bytes(received)  # refused in the middle
        except OSError as error:
            if error.errno not in (107,):  # ENOTCONN: closed before our shutdown
                raise
        while True:
            left = deadline - time.monotonic()
            assert left > 0, f"{address} still open {CLOSE_TIMEOUT_S:g} s after the end of what it was sent"
            connection.settimeout(left)
            try:
                more = connection.recv(1 << 16)
            except ConnectionResetError:
                return bytes(received)
            except TimeoutError:
                continue
            if not more:
                return bytes(received)
            received += more
