"""The broker's own state on its own log: topics, groups, positions and leases are a fold of the records of one system
topic, with a snapshot file to bound the replay.

Changes of positions and leases are gathered by the delivery core's journal and appended together, as one record
(`Broker.touched` says when). Changes of topics and groups are appended with them and waited for until they are on disk.
When the disk is full, what could not be appended waits here up to a bound; above it the next snapshot stands for all of
it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from razzo.broker import json_files, snapshot_file, state_codec
from razzo.broker.delivery import Delivery
from razzo.broker.groups import GroupDeleted, GroupPut, GroupTable
from razzo.broker.hand_over import HandOver
from razzo.broker.state_codec import Event, SettingsEvent
from razzo.broker.topics import TopicDeleted, TopicPut, TopicTable
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault
from razzo.protocol.names import STATE_TOPIC
from razzo.protocol.properties import WAIT, encode_properties
from razzo.runtime.logs import fields
from razzo.storage import DiskFull, NewMessage, Store, StoreError
from razzo.v1 import state_pb2

log = logging.getLogger(__name__)

STATE_QUEUE = 0
SNAPSHOT_FILE = Path("config/razzo/snapshot.bin")
UNWRITTEN_EVENTS_MAX = 100_000
REPLAY_RECORDS = 256
REPLAY_BYTES = 8 << 20
# A record without any property makes a Java reader fail (store-and-semantics.md 2.3); this one is not in the key index.
_PROPERTIES = encode_properties({WAIT: "false"})


class Recovered(NamedTuple):
    """What a start found: where the state came from, and how much of the log was replayed."""

    source: str
    records: int
    events: int


class StateLog:
    """Folds, appends and snapshots. All methods but `recover` belong to the loop's thread."""

    def __init__(
        self,
        store: Store,
        root: Path,
        topics: TopicTable,
        groups: GroupTable,
        delivery: Delivery,
        clock_ms: Callable[[], int],
        snapshot_records: int,
    ) -> None:
        self._store = store
        self._path = root / SNAPSHOT_FILE
        self._topics = topics
        self._groups = groups
        self._delivery = delivery
        self._clock_ms = clock_ms
        self._snapshot_records = snapshot_records
        self._unwritten: list[Event] = []
        self._next_offset = 0
        self._records_since_snapshot = 0
        self._snapshot_wanted = False
        self._writing = asyncio.Lock()
        self._files_are_source = False
        self._saving = threading.Lock()

    # --- start

    def recover(self) -> Recovered:
        """Rebuilds the tables from snapshot and log, and from RocketMQ's JSON files where another broker wrote them
        last (`hand_over.py`). Blocking; the store is open."""
        source = "log"
        snapshot = self._read_snapshot()
        first, end = self._store.queue_range(STATE_TOPIC, STATE_QUEUE)
        start = first
        events = 0
        if snapshot is not None:
            source = "snapshot"
            start = snapshot.state_queue_offset
            events += self._apply_all(snapshot.events)
            if start < first:
                log.error(
                    "state records between the snapshot and the log are gone",
                    extra=fields(snapshot=start, first=first),
                )
        elif end == 0:
            source = "files"
            self._snapshot_wanted = True
        records = 0
        offset = max(start, first)
        while offset < end:
            result = self._store.read(STATE_TOPIC, STATE_QUEUE, offset, REPLAY_RECORDS, REPLAY_BYTES)
            for message in result.messages:
                events += self._apply_all(state_pb2.StateBatch.FromString(message.body).events)
            records += len(result.messages)
            if result.next_offset <= offset:
                raise BrokerFault(Code.INTERNAL_ERROR, f"the state topic cannot be read at {offset}: {result.status}")
            offset = result.next_offset
        self._next_offset = max(offset, end)
        self._records_since_snapshot = records
        taken = HandOver(self._store, self._topics, self._groups, self._delivery, self._clock_ms()).take(
            all_files=source == "files"
        )
        if taken:
            log.info("taken over from another broker's files", extra=fields(**taken._asdict()))
            self._snapshot_wanted = self._files_are_source = True
        self._delivery.settle()
        self._delivery.take_woken()
        return Recovered(source, records, events)

    def _read_snapshot(self) -> state_pb2.StateSnapshot | None:
        try:
            return snapshot_file.read(self._path)
        except snapshot_file.SnapshotDamaged as damage:
            log.error("snapshot not used: %s", damage)
            return None

    def _apply_all(self, encoded: Iterable[state_pb2.StateEvent]) -> int:
        count = 0
        for each in encoded:
            event = state_codec.decode(each)
            if event is None:
                log.warning("a state event of a newer version is skipped")
                continue
            self.apply(event)
            count += 1
        return count

    # --- fold

    def apply(self, event: Event) -> None:
        match event:
            case TopicPut():
                self._topics.apply(event)
            case TopicDeleted(name):
                self._topics.apply(event)
                self._delivery.forget(topic=name)
            case GroupPut():
                self._groups.apply(event)
            case GroupDeleted(name):
                self._groups.apply(event)
                self._delivery.forget(group=name)
            case _:
                self._delivery.apply(event)

    # --- append

    def append_pending(self) -> None:
        """Appends what the journal gathered. A full disk keeps it for later. No flush is asked for: losing the newest
        leases, acknowledgements and positions in a power cut means redelivery, which consumers have to expect."""
        events = self._take()
        if not events:
            return
        try:
            self._append(events, flush=False)
        except DiskFull:
            self._keep(events)
        except StoreError:
            self._keep(events)
            log.exception("state not appended")

    def commit(self, *events: SettingsEvent) -> int:
        """Appends changes of topics and groups and lets them take effect; the log offset to wait for. BrokerFault when
        they cannot be stored, and then they have no effect."""
        pending = self._take()
        try:
            end = self._append([*pending, *events], flush=True)
        except DiskFull as full:
            self._keep(pending)
            raise BrokerFault(Code.TOO_MANY_REQUESTS, f"not stored: {full}") from full
        except StoreError as error:
            self._keep(pending)
            raise BrokerFault(Code.INTERNAL_SERVER_ERROR, f"not stored: {error}") from error
        for event in events:
            self.apply(event)
        return end

    def _take(self) -> list[Event]:
        events: list[Event] = [*self._unwritten, *self._delivery.journal.drain()]
        self._unwritten = []
        return events

    def _append(self, events: list[Event], *, flush: bool) -> int:
        """The log offset where the records end."""
        now_ms = self._clock_ms()
        records = [
            NewMessage(STATE_TOPIC, STATE_QUEUE, body, _PROPERTIES, born_ms=now_ms)
            for body in state_codec.batches(events)
        ]
        appended = self._store.append(records, flush=flush)[-1]
        self._next_offset = appended.queue_offset + 1
        self._records_since_snapshot += len(records)
        return appended.physical_offset + appended.size

    def _keep(self, events: list[Event]) -> None:
        if len(events) > UNWRITTEN_EVENTS_MAX:
            log.error("state changes dropped until the next snapshot", extra=fields(events=len(events)))
            self._snapshot_wanted = True
            return
        self._unwritten = events

    # --- snapshots

    @property
    def snapshot_due(self) -> bool:
        return self._snapshot_wanted or self._records_since_snapshot >= self._snapshot_records

    async def snapshot(self) -> None:
        """Writes the snapshot file, not before the log it stands for is on disk. OSError."""
        async with self._writing:
            self.append_pending()
            self._records_since_snapshot = 0
            wanted, self._snapshot_wanted = self._snapshot_wanted, False
            log_offset = self._store.max_physical_offset
            encoded = self._encode_snapshot(log_offset)
            try:
                if not await self._store.wait_flushed(log_offset):
                    raise TimeoutError("the log was not flushed in time for a snapshot")
                await asyncio.to_thread(snapshot_file.write, self._path, encoded)
            except (OSError, StoreError):
                self._snapshot_wanted = wanted
                raise
            self._files_are_source = False

    def _encode_snapshot(self, log_offset: int) -> bytes:
        snapshot = state_pb2.StateSnapshot(log_offset=log_offset, state_queue_offset=self._next_offset)
        snapshot.events.extend(state_codec.encode(event) for event in self._events())
        return snapshot.SerializeToString()

    def _events(self) -> Iterator[Event]:
        for topic in self._topics:
            yield TopicPut(topic)
        for group in self._groups:
            yield GroupPut(group)
        yield from self._delivery.snapshot()

    # --- RocketMQ's files

    @property
    def files_are_source(self) -> bool:
        """What was taken over from the files is in no snapshot yet: they must not be written before."""
        return self._files_are_source

    async def write_settings_files(self) -> None:
        """topics.json and subscriptionGroup.json. OSError."""
        topics, groups = list(self._topics), list(self._groups)
        await self._save(json_files.TOPICS, partial(json_files.topics_value, topics))
        await self._save(json_files.GROUPS, partial(json_files.groups_value, groups))

    async def write_position_file(self) -> None:
        """consumerOffset.json. OSError."""
        positions = [
            (group, topic, position.queue_id, position.floor)
            for group, topic in self._delivery.subscriptions()
            for position in self._delivery.positions(group, topic)
        ]
        await self._save(json_files.OFFSETS, partial(json_files.offsets_value, positions))

    async def _save(self, name: str, value: Callable[[Mapping[str, Any], int], dict[str, Any]]) -> None:
        """`value` makes the new content out of the former one and the time."""
        now_ms = self._clock_ms()

        def save() -> None:
            with self._saving:  # a cancelled call leaves its thread behind
                self._store.save_config(name, value(self._store.load_config(name) or {}, now_ms))

        async with self._writing:
            await asyncio.to_thread(save)
