"""Core: which brokers there are, by the beats on their streams.

A broker is known from its first full beat until the first of these: its stream ends, no beat came for the expiry, a
newer run of the same broker registers, or it says that it is leaving. Life of one entry:

=============  ===========================  =====================================================
from           event                        to
=============  ===========================  =====================================================
(none)         full beat                    serving, in the view
serving        beat with `leaving`          leaving: out of the view, still reachable by handle
leaving        full beat without `leaving`  serving
any            stream ended or expired      (none)
any            full beat on another stream  the other stream's; this one is superseded and ended
=============  ===========================  =====================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.limits import BROKER_NAME_BYTES_MAX
from razzo.v1 import registry_pb2

BROKER_EXPIRY_MS = 120_000
"""Without a beat for longer, a broker is gone even if its connection looks alive (RocketMQ's own number)."""
BEAT_INTERVAL_MS = 30_000
"""What brokers are expected to keep to."""
BROKERS_MAX = 1_024
"""Brokers of one cluster; the next one is refused (42900)."""
TOPICS_PER_BROKER_MAX = 100_000
GROUPS_PER_BROKER_MAX = 100_000
"""Above either the beat is refused: a broker enforces smaller numbers itself."""
PORT_MAX = 65_535

assert BROKER_EXPIRY_MS >= 3 * BEAT_INTERVAL_MS


class Applied(NamedTuple):
    """What a beat did."""

    acked_sequence: int
    changed: bool
    """The view is another one than before."""
    superseded: int | None
    """The connection that held the same broker until now and has to be ended."""


@dataclass(slots=True)
class _Entry:
    connection: int
    broker: registry_pb2.BrokerInfo
    beat_ms: int
    leaving: bool

    @property
    def key(self) -> tuple[str, str, int]:
        return self.broker.cluster, self.broker.broker_name, self.broker.broker_id


class Registry:
    """Brokers by connection. `connection` is any number that is never used again; times are of a steady clock."""

    def __init__(self, expiry_ms: int = BROKER_EXPIRY_MS, brokers_max: int = BROKERS_MAX) -> None:
        self._expiry_ms = expiry_ms
        self._brokers_max = brokers_max
        self._entries: dict[int, _Entry] = {}
        self._sequences: dict[int, int] = {}
        self._view = registry_pb2.ClusterView()
        self.version = 0
        """Grows whenever the view changes."""

    def beat(self, connection: int, beat: registry_pb2.BrokerBeat, now_ms: int) -> Applied:
        """Applies one beat. RequestRefused when it makes no sense; the connection is then to be ended."""
        if beat.sequence <= self._sequences.get(connection, 0):
            raise RequestRefused(Code.BAD_REQUEST, f"beat {beat.sequence} came after a higher one")
        entry = self._entries.get(connection)
        superseded = None
        if beat.HasField("broker"):
            _check(beat.broker)
            entry, superseded = self._put(connection, entry, beat)
        elif entry is None:
            raise RequestRefused(Code.BAD_REQUEST, "the first beat of a connection must carry the broker")
        elif beat.leaving:
            entry.leaving = True
        entry.beat_ms = now_ms
        self._sequences[connection] = beat.sequence
        return Applied(beat.sequence, self._refresh(), superseded)

    def disconnected(self, connection: int) -> bool:
        """The stream ended. True when it was a broker's; the view changed by it if the broker was serving."""
        dropped = self._drop(connection)
        self._refresh()
        return dropped

    def expire(self, now_ms: int) -> list[int]:
        """The connections whose brokers were silent for longer than the expiry; they are dropped and to be ended."""
        expired = [c for c, entry in self._entries.items() if now_ms - entry.beat_ms > self._expiry_ms]
        for connection in expired:
            self._drop(connection)
        self._refresh()
        return expired

    def view(self) -> registry_pb2.ClusterView:
        """The brokers that serve, ordered by cluster, name and id. Not to be changed by the caller."""
        return self._view

    def reachable(self, broker_name: str) -> registry_pb2.BrokerInfo | None:
        """The master of a name as long as it is connected, also while it is leaving: its handles are still out."""
        found = None
        for entry in self._entries.values():
            if entry.broker.broker_name == broker_name and entry.broker.broker_id == 0:
                if not entry.leaving:
                    return entry.broker
                found = entry.broker
        return found

    def connected(self) -> list[registry_pb2.BrokerInfo]:
        """All brokers that can be asked, leaving ones too."""
        return [entry.broker for entry in sorted(self._entries.values(), key=lambda entry: entry.key)]

    def describe(self) -> str:
        leaving = sum(entry.leaving for entry in self._entries.values())
        return f"{len(self._view.brokers)} brokers serve, {leaving} leave, view {self.version}"

    def _put(
        self, connection: int, entry: _Entry | None, beat: registry_pb2.BrokerBeat
    ) -> tuple[_Entry, int | None]:
        broker = registry_pb2.BrokerInfo()
        broker.CopyFrom(beat.broker)
        fresh = _Entry(connection, broker, 0, beat.leaving)
        if entry is not None and entry.key != fresh.key:
            raise RequestRefused(Code.BAD_REQUEST, "a connection keeps one broker's cluster, name and id")
        if entry is not None and broker.data_version < entry.broker.data_version:
            raise RequestRefused(Code.BAD_REQUEST, "the data version of a broker never goes back")
        superseded = next((c for c, other in self._entries.items() if other.key == fresh.key and c != connection), None)
        if superseded is not None:
            self._drop(superseded)
        elif entry is None and len(self._entries) >= self._brokers_max:
            raise RequestRefused(Code.TOO_MANY_REQUESTS, f"{self._brokers_max} brokers already")
        self._entries[connection] = fresh
        return fresh, superseded

    def _drop(self, connection: int) -> bool:
        self._sequences.pop(connection, None)
        return self._entries.pop(connection, None) is not None

    def _refresh(self) -> bool:
        serving = sorted((e for e in self._entries.values() if not e.leaving), key=lambda entry: entry.key)
        if len(serving) == len(self._view.brokers) and all(
            entry.broker == shown for entry, shown in zip(serving, self._view.brokers, strict=True)
        ):
            return False
        self._view = registry_pb2.ClusterView(brokers=[entry.broker for entry in serving])
        self.version += 1
        return True


def _check(broker: registry_pb2.BrokerInfo) -> None:
    size = len(broker.broker_name.encode())
    if not 0 < size <= BROKER_NAME_BYTES_MAX:
        raise RequestRefused(Code.BAD_REQUEST, f"a broker name has 1 to {BROKER_NAME_BYTES_MAX} bytes, not {size}")
    if broker.broker_id < 0:
        raise RequestRefused(Code.BAD_REQUEST, f"a broker id is 0 or more, not {broker.broker_id}")
    if not broker.incarnation:
        raise RequestRefused(Code.BAD_REQUEST, "the incarnation is absent")
    needed = [("peer", broker.peer), ("client_plain", broker.client_plain)]
    if broker.HasField("client_tls"):
        needed.append(("client_tls", broker.client_tls))
    for name, address in needed:
        if not address.host or not 0 < address.port <= PORT_MAX:
            raise RequestRefused(Code.BAD_REQUEST, f"the address {name} needs a host and a port of 1 to {PORT_MAX}")
    if len(broker.topics) > TOPICS_PER_BROKER_MAX or len(broker.groups) > GROUPS_PER_BROKER_MAX:
        raise RequestRefused(Code.BAD_REQUEST, "the broker names too many topics or groups")
