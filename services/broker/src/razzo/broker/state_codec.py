"""Events of the broker's state as razzo.v1.StateEvent, and back (proto/razzo/v1/state.proto)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from razzo.broker import config_wire
from razzo.broker.delivery_events import Acked, DeliveryEvent, Leased, PositionSet, QueueKey, Rescheduled
from razzo.broker.groups import GroupDeleted, GroupPut
from razzo.broker.topics import TopicDeleted, TopicPut
from razzo.v1 import state_pb2

SettingsEvent: TypeAlias = TopicPut | TopicDeleted | GroupPut | GroupDeleted
Event: TypeAlias = DeliveryEvent | SettingsEvent

BATCH_WEIGHT_MAX = 50_000
"""Offsets and events in one StateBatch. An offset takes at most 10 bytes and an event without its names 60, so a batch
stays far below the largest body."""


def encode(event: Event) -> state_pb2.StateEvent:
    encoded = state_pb2.StateEvent()
    _fill(encoded, event)
    return encoded


def _fill(encoded: state_pb2.StateEvent, event: Event) -> None:
    match event:
        case TopicPut(topic):
            encoded.topic_put.CopyFrom(config_wire.topic_config(topic))
        case TopicDeleted(name):
            encoded.topic_deleted = name
        case GroupPut(group):
            encoded.group_put.CopyFrom(config_wire.group_config(group))
        case GroupDeleted(name):
            encoded.group_deleted = name
        case _:
            _fill_delivery(encoded, event)


def _fill_delivery(encoded: state_pb2.StateEvent, event: DeliveryEvent) -> None:
    """Set in place: these are the events of every receive, and a copy of each costs as much as the rest."""
    into: state_pb2.PositionSet | state_pb2.Leased | state_pb2.Acked | state_pb2.Rescheduled
    if isinstance(event, Leased):
        into = leased = encoded.leased
        leased.base = base = min(event.offsets)
        leased.offsets.extend([offset - base for offset in event.offsets])
        leased.attempts.extend(event.attempts)
        leased.pop_ms = event.pop_ms
        leased.visible_ms = event.visible_ms
        leased.next_offset = event.next_offset
    elif isinstance(event, Acked):
        into = acked = encoded.acked
        acked.base = base = min(event.offsets)
        acked.offsets.extend([offset - base for offset in event.offsets])
    elif isinstance(event, PositionSet):
        into = position = encoded.position_set
        position.next_offset = event.next_offset
        position.drop_leases = event.drop_leases
    else:
        into = moved = encoded.rescheduled
        moved.offset = event.offset
        moved.visible_ms = event.visible_ms
        moved.pop_ms = event.pop_ms
    into.group, into.topic, into.queue_id = event.key


def decode(encoded: state_pb2.StateEvent) -> Event | None:
    """None for an event that a newer version wrote."""
    kind = encoded.WhichOneof("event")
    match kind:
        case "topic_put":
            return TopicPut(config_wire.topic_of(encoded.topic_put))
        case "topic_deleted":
            return TopicDeleted(encoded.topic_deleted)
        case "group_put":
            return GroupPut(config_wire.group_of(encoded.group_put))
        case "group_deleted":
            return GroupDeleted(encoded.group_deleted)
        case "position_set":
            position = encoded.position_set
            return PositionSet(_key(position), position.next_offset, position.drop_leases)
        case "leased":
            leased = encoded.leased
            return Leased(
                _key(leased),
                tuple(leased.base + offset for offset in leased.offsets),
                tuple(leased.attempts),
                leased.pop_ms,
                leased.visible_ms,
                leased.next_offset,
            )
        case "acked":
            return Acked(_key(encoded.acked), [encoded.acked.base + offset for offset in encoded.acked.offsets])
        case "rescheduled":
            moved = encoded.rescheduled
            return Rescheduled(_key(moved), moved.offset, moved.visible_ms, moved.pop_ms)
        case _:
            return None


def batches(events: Iterable[Event]) -> Iterator[bytes]:
    """Serialized StateBatch messages of bounded size, in order."""
    batch = state_pb2.StateBatch()
    weight = 0
    for event in events:
        _fill(batch.events.add(), event)
        weight += 1 + (len(event.offsets) if isinstance(event, Leased | Acked) else 0)
        if weight >= BATCH_WEIGHT_MAX:
            yield batch.SerializeToString()
            batch = state_pb2.StateBatch()
            weight = 0
    if weight:
        yield batch.SerializeToString()


def _key(event: state_pb2.PositionSet | state_pb2.Leased | state_pb2.Acked | state_pb2.Rescheduled) -> QueueKey:
    return event.group, event.topic, event.queue_id
