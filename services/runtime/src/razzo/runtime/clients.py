"""Core: the clients a node knows of, what they said of themselves, and when they are gone.

A client lives while it has a Telemetry stream here or was heard of within `expiry_ms`: clients whose stream broke
re-open it late (Python up to 10 minutes) or never (C#), and go on by heartbeats. Only the client id identifies one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from razzo.protocol.limits import CLIENT_EXPIRY_MS

CLIENTS_MAX = 100_000
"""Clients remembered; a new one above it makes the one heard of longest ago forgotten (see `ClientTable.evicted`)."""
TOPICS_PER_CLIENT_MAX = 2_048
"""Topics remembered of one client that were seen in calls rather than in Settings; further ones are not."""


@dataclass(slots=True)
class Client:
    """One client as this node knows it. Names are effective names (namespace included)."""

    client_id: str
    heard_ms: int
    """Last time that anything came from it."""
    language: int = 0
    """apache.rocketmq.v2.Language; 0 until Settings came."""
    client_type: int = 0
    """apache.rocketmq.v2.ClientType; 0 while unknown."""
    version: str = ""
    peer: str = ""
    group: str = ""
    """Consumer group; empty for a producer."""
    subscriptions: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Topic to (FilterType, expression), as in the latest Settings."""
    topics: set[str] = field(default_factory=set)
    """Topics it publishes to, receives from or asked about, by Settings or by a call."""
    streams: int = 0
    """Telemetry streams open here."""

    def all_topics(self) -> set[str]:
        return self.topics | self.subscriptions.keys()


@dataclass(frozen=True, slots=True)
class Said:
    """What Settings say of a client."""

    language: int
    client_type: int
    version: str
    group: str
    subscriptions: dict[str, tuple[int, str]]
    topics: Collection[str]


class ClientTable:
    """Clients by id. Every method that brings news takes the time in milliseconds of any steady clock."""

    def __init__(self, expiry_ms: int = CLIENT_EXPIRY_MS, clients_max: int = CLIENTS_MAX) -> None:
        self._expiry_ms = expiry_ms
        self._clients_max = clients_max
        self._clients: dict[str, Client] = {}  # by client id, the one heard of longest ago first
        self._groups: dict[str, set[str]] = {}
        self.evicted = 0
        """Clients forgotten because of `clients_max`."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def get(self, client_id: str) -> Client | None:
        return self._clients.get(client_id)

    def of_group(self, group: str) -> list[Client]:
        """The members of a consumer group, by client id."""
        return [self._clients[client_id] for client_id in sorted(self._groups.get(group, ()))]

    def settings(self, client_id: str, said: Said, now_ms: int, peer: str = "") -> Client:
        """Settings came; they replace what earlier ones said."""
        client = self._heard(client_id, now_ms)
        client.language, client.client_type, client.version = said.language, said.client_type, said.version
        client.peer = peer or client.peer
        client.subscriptions = dict(said.subscriptions)
        client.topics = set(said.topics)
        self._join(client, said.group)
        return client

    def heartbeat(self, client_id: str, client_type: int, group: str, now_ms: int, peer: str = "") -> Client:
        """A heartbeat came. An empty one (Go while it recovers a stream) changes nothing but the time."""
        client = self._heard(client_id, now_ms)
        client.client_type = client_type or client.client_type
        client.peer = peer or client.peer
        if group:
            self._join(client, group)
        return client

    def uses(self, client_id: str, topic: str, now_ms: int, group: str = "") -> Client:
        """A call of the client named a topic, and a consumer group if it consumes."""
        client = self._heard(client_id, now_ms)
        if len(client.topics) < TOPICS_PER_CLIENT_MAX:
            client.topics.add(topic)
        if group:
            self._join(client, group)
        return client

    def stream_opened(self, client_id: str, now_ms: int) -> Client:
        client = self._heard(client_id, now_ms)
        client.streams += 1
        return client

    def stream_lost(self, client_id: str, now_ms: int) -> None:
        """A Telemetry stream ended; the client has `expiry_ms` from now to be heard of."""
        client = self._clients.get(client_id)
        if client is not None:
            self._heard(client_id, now_ms)
            client.streams = max(0, client.streams - 1)

    def terminated(self, client_id: str) -> Client | None:
        """The client said goodbye; what was known of it, or None."""
        return self._forget(client_id)

    def expire(self, now_ms: int) -> list[Client]:
        """Forgets and returns the clients that have no stream and were not heard of for longer than the expiry."""
        gone = []
        for client in list(self._clients.values()):
            if now_ms - client.heard_ms <= self._expiry_ms:
                break  # all others were heard of later
            if client.streams == 0:
                gone.append(client)
                self._forget(client.client_id)
        return gone

    def describe(self) -> str:
        streams = sum(client.streams for client in self)
        return f"{len(self._clients)} clients, {streams} streams, {len(self._groups)} groups, {self.evicted} evicted"

    def _heard(self, client_id: str, now_ms: int) -> Client:
        client = self._clients.pop(client_id, None)
        if client is None:
            client = Client(client_id, now_ms)
            if len(self._clients) >= self._clients_max:
                self._forget(next(iter(self._clients)))
                self.evicted += 1
        client.heard_ms = now_ms
        self._clients[client_id] = client  # last: keeps the order of `_clients`
        return client

    def _join(self, client: Client, group: str) -> None:
        if client.group == group:
            return
        self._leave(client)
        client.group = group
        if group:
            self._groups.setdefault(group, set()).add(client.client_id)

    def _leave(self, client: Client) -> None:
        members = self._groups.get(client.group)
        if members is not None:
            members.discard(client.client_id)
            if not members:
                del self._groups[client.group]

    def _forget(self, client_id: str) -> Client | None:
        client = self._clients.pop(client_id, None)
        if client is not None:
            self._leave(client)
        return client
