"""Core: which brokers have yet to hear that a consumer group reads a topic.

A group's position is fixed when a broker first hears of the group; messages sent after that are delivered. A client
that talks to the nameserver only (Rust, Go for assignments, everybody who is served through it) is first seen here, so
the brokers of the topic are told before the client is answered, once for each run of each broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from razzo.runtime.routes import Serving
from razzo.v1 import registry_pb2

SEEN_MAX = 200_000
"""Facts remembered; above it all are forgotten and told again when asked about, which does no harm."""


class FirstSight:
    """What was told, as (group, topic, broker incarnation). Names are effective names."""

    def __init__(self, seen_max: int = SEEN_MAX) -> None:
        self._seen_max = seen_max
        self._told: set[tuple[str, str, str]] = set()

    def __len__(self) -> int:
        return len(self._told)

    def to_tell(self, group: str, topic: str, serving: Sequence[Serving]) -> list[registry_pb2.BrokerInfo]:
        """The brokers of the topic that were not told yet."""
        return [each.broker for each in serving if (group, topic, each.broker.incarnation) not in self._told]

    def told(self, group: str, topic: str, broker: registry_pb2.BrokerInfo) -> None:
        if len(self._told) >= self._seen_max:
            self._told.clear()
        self._told.add((group, topic, broker.incarnation))

    def retain(self, brokers: Iterable[registry_pb2.BrokerInfo]) -> None:
        """Forgets what brokers were told that are gone."""
        kept = {broker.incarnation for broker in brokers}
        self._told = {fact for fact in self._told if fact[2] in kept}
