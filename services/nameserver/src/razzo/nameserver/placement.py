"""Core: which broker a message goes to that a client sent to the nameserver.

Messages with a message group (or a lite topic) always go to the same broker as long as the brokers stay the same, and
when one leaves only its own groups move (rendezvous hashing). All others take turns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime.routes import Serving
from razzo.v1 import registry_pb2

TURNS_MAX = 100_000
"""Topics whose turn is remembered; above it all start again."""


class Placement:
    def __init__(self, turns_max: int = TURNS_MAX) -> None:
        self._turns_max = turns_max
        self._turns: dict[str, int] = {}

    def broker_for(self, topic: str, serving: Sequence[Serving], ordering_key: str = "") -> registry_pb2.BrokerInfo:
        """One of the brokers where the topic is writable. RequestRefused (FORBIDDEN) when there is none."""
        brokers = [each.broker for each in serving if each.writable]
        if not brokers:
            raise RequestRefused(Code.FORBIDDEN, f"the topic {topic!r} cannot be written")
        if ordering_key:
            return max(brokers, key=lambda broker: _weight(topic, ordering_key, broker.broker_name))
        if len(self._turns) >= self._turns_max and topic not in self._turns:
            self._turns.clear()
        turn = self._turns[topic] = self._turns.get(topic, -1) + 1
        return brokers[turn % len(brokers)]


def _weight(topic: str, ordering_key: str, broker_name: str) -> bytes:
    text = f"{topic}\0{ordering_key}\0{broker_name}"
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
