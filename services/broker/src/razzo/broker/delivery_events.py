"""What the delivery core tells the log, and the journal that gathers it between two appends.

The events mirror `razzo.v1.StateEvent` (proto/razzo/v1/state.proto) as plain values: offsets are queue offsets, times
are Unix milliseconds. Replaying the events of the log in order rebuilds the core (`Delivery.apply`).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

QueueKey: TypeAlias = tuple[str, str, int]
"""Consumer group, topic, queue id."""

ACKED_OFFSETS_MAX = 4_096
"""Offsets in one `Acked`; the next ack of the queue opens another event."""


class PositionSet(NamedTuple):
    """A group's next offset of a queue was set; `drop_leases` forgets every lease of the queue."""

    key: QueueKey
    next_offset: int
    drop_leases: bool


class Leased(NamedTuple):
    """Messages were handed out; `offsets` and `attempts` are parallel, offsets rising."""

    key: QueueKey
    offsets: tuple[int, ...]
    attempts: tuple[int, ...]
    pop_ms: int
    visible_ms: int
    next_offset: int


class Acked(NamedTuple):
    """Leases ended for good: acknowledged, dead-lettered or gone from the store. `offsets` grows while it is open."""

    key: QueueKey
    offsets: list[int]


class Rescheduled(NamedTuple):
    """A lease's deadline was moved."""

    key: QueueKey
    offset: int
    visible_ms: int
    pop_ms: int


DeliveryEvent: TypeAlias = PositionSet | Leased | Acked | Rescheduled


class Journal:
    """Events not yet appended to the log, in order. Acks of one queue are merged as long as nothing else of that queue
    came between them."""

    def __init__(self) -> None:
        self._events: list[DeliveryEvent] = []
        self._open_acks: dict[QueueKey, Acked] = {}

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: DeliveryEvent) -> None:
        self._open_acks.pop(event.key, None)
        self._events.append(event)

    def ack(self, key: QueueKey, offset: int) -> None:
        acked = self._open_acks.get(key)
        if acked is None or len(acked.offsets) >= ACKED_OFFSETS_MAX:
            acked = self._open_acks[key] = Acked(key, [])
            self._events.append(acked)
        acked.offsets.append(offset)

    def drain(self) -> list[DeliveryEvent]:
        events, self._events = self._events, []
        self._open_acks.clear()
        return events
