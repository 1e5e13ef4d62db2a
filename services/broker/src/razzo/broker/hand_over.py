"""A store that Apache's broker served last: its topics, groups and positions, and what its consumers still have out.

Where Apache keeps what: store-and-semantics.md 0.3, 1.1, 11.2 to 11.4, 12. A message that a consumer has out, or whose
retry waits as a copy in a retry topic, becomes a lease on the original: it comes again from its own queue offset, as
everything does here. The copies then count as consumed.

Everything may be taken over again, as long as the files were not yet written by us: what is already so stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from razzo.broker import json_files
from razzo.broker.delivery import Delivery
from razzo.broker.delivery_events import Leased, QueueKey
from razzo.broker.groups import GroupPut, GroupTable
from razzo.broker.pop_records import CHECKPOINT, TAGS, OutMessage, PopLedger
from razzo.broker.topics import Topic, TopicPut, TopicTable
from razzo.protocol import properties
from razzo.protocol.limits import DELAY_LEVELS_MS, INVISIBLE_MS_MAX
from razzo.protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_system_topic, retry_topic
from razzo.runtime.logs import fields
from razzo.storage import Store, StoredMessage, parse_offset_message_id, tag_hash

log = logging.getLogger(__name__)

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
INHERIT = 1
"""The permission of a topic that is a template for others."""
REPLY_SUFFIX = "_REPLY_TOPIC"
APACHE_SYSTEM_PREFIX = "RMQ_SYS_"
READ_RECORDS = 1_024
READ_BYTES = 8 << 20
POP_RECORDS_MAX = 2_000_000
"""Newest records of one queue of checkpoints that are looked at; what was handed out before them stays consumed."""
SAME_ID_MESSAGES_MAX = 32
ALL_TIME_MS = (1 << 63) - 1
_RETRY_SEPARATORS = ("_", "+")
"""Between group and topic in the names of POP retry topics, of versions 1 and 2."""
_PLAIN_OFFSET_ID_DIGITS = 32


class TakenOver(NamedTuple):
    """How much a hand-over brought."""

    topics: int = 0
    groups: int = 0
    positions: int = 0
    leases: int = 0
    lost: int = 0
    """Messages out, or waiting for a retry, whose original is no longer found."""

    def __bool__(self) -> bool:
        return any(self)


class _Due(NamedTuple):
    attempt: int
    pop_ms: int
    visible_ms: int


class HandOver:
    """Use once, at the start, with the store open and its state replayed; then call `Delivery.settle`."""

    def __init__(self, store: Store, topics: TopicTable, groups: GroupTable, delivery: Delivery, now_ms: int) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._delivery = delivery
        self._now_ms = now_ms
        self._due: dict[QueueKey, dict[int, _Due]] = {}
        self._lost = 0

    def take(self, *, all_files: bool) -> TakenOver:
        """Brings in what the files say that Apache wrote, or with `all_files` whoever wrote them."""
        topics = self._load(json_files.TOPICS, all_files)
        groups = self._load(json_files.GROUPS, all_files)
        offsets = self._load(json_files.OFFSETS, all_files)
        topic_count = 0 if topics is None else self._take_topics(topics)
        group_count = 0 if groups is None else self._take_groups(groups)
        if offsets is None:
            return TakenOver(topic_count, group_count)
        positions = {(group, topic, queue): at for group, topic, queue, at in json_files.offsets_of(offsets)}
        position_count = self._take_positions(positions)
        self._collect_out(positions)
        self._collect_copies(positions)
        self._collect_delayed_copies()
        return TakenOver(topic_count, group_count, position_count, self._lease(), self._lost)

    def _load(self, name: str, whoever: bool) -> Mapping[str, Any] | None:
        value = self._store.load_config(name)
        return value if value is not None and (whoever or not json_files.is_ours(value)) else None

    # --- settings and positions

    def _take_topics(self, value: Mapping[str, Any]) -> int:
        """Topics that only the store knows get the queues they have there. A topic that Apache deleted stays."""
        topics = {topic.name: topic for topic in without_apaches_own(json_files.topics_of(value))}
        for name in self._store.topics():
            queue_ids = self._store.queue_ids(name)
            if name not in topics and queue_ids and self._topics.find(name) is None and not is_system_topic(name):
                topics[name] = Topic(name, max(queue_ids) + 1, max(queue_ids) + 1)
        changed = [topic for topic in topics.values() if self._topics.find(topic.name) != topic]
        for topic in changed:
            self._topics.apply(TopicPut(topic))
        return len(changed)

    def _take_groups(self, value: Mapping[str, Any]) -> int:
        count = 0
        for group in json_files.groups_of(value):
            known = self._groups.find(group.name)
            if known is not None:
                group = replace(group, lite_bind_topic=known.lite_bind_topic)  # the file has no place for it
            if group != known:
                self._groups.apply(GroupPut(group))
                count += 1
        return count

    def _take_positions(self, positions: Mapping[QueueKey, int]) -> int:
        """A position that is not the one we wrote was moved by Apache: what we knew of the queue is over."""
        floors: dict[tuple[str, str], dict[int, int]] = {}
        for group, topic in {key[:2] for key in positions}:
            known = self._delivery.positions(group, topic)
            floors[group, topic] = {each.queue_id: each.floor for each in known}
        moved = [key for key, at in positions.items() if floors[key[:2]].get(key[2]) != max(at, 0)]
        for key in moved:
            self._delivery.reset(*key, max(positions[key], 0))
        return len(moved)

    # --- what consumers have out

    def _collect_out(self, positions: Mapping[QueueKey, int]) -> None:
        ledger = PopLedger()
        for topic in self._store.topics():
            if topic == TIMER_TOPIC:
                self._read_pop_records(topic, 0, -1, ledger)
            elif topic.startswith(REVIVE_PREFIX):
                for queue_id in self._store.queue_ids(topic):
                    # The position is of the last one processed, not of the next; absent, none was.
                    self._read_pop_records(topic, queue_id, positions.get((REVIVE_GROUP, topic, queue_id), -1), ledger)
                    end = self._store.queue_range(topic, queue_id)[1]
                    self._delivery.reset(REVIVE_GROUP, topic, queue_id, max(end - 1, 0))
        if ledger.unreadable:
            log.warning("checkpoints that cannot be read", extra=fields(records=ledger.unreadable))
        for out in ledger.out():
            if out.topic.startswith(RETRY_PREFIX):
                self._collect_copy_out(out)
            else:
                self._collect((out.group, out.topic, out.queue_id), out.offset, _Due(1, out.pop_ms, out.visible_ms))

    def _read_pop_records(self, topic: str, queue_id: int, processed: int, ledger: PopLedger) -> None:
        """Checkpoints up to the offset `processed` are over. Records are looked at for as long back as a message may be
        out."""
        first, end = self._store.queue_range(topic, queue_id)
        newest_ms = self._newest_ms(topic, queue_id, end)
        start = self._store.offset_by_time(topic, queue_id, newest_ms - INVISIBLE_MS_MAX)
        for message in self._messages(topic, queue_id, max(first, start, end - POP_RECORDS_MAX), end, TAGS):
            tag = message.properties.get(properties.TAGS, "")
            if tag in TAGS:
                over = tag == CHECKPOINT and message.queue_offset <= processed
                ledger.take(tag, message.body, processed=over)

    def _newest_ms(self, topic: str, queue_id: int, end: int) -> int:
        newest = self._store.read_offsets(topic, queue_id, [end - 1])[0] if end else None
        return self._now_ms if newest is None else newest.store_ms

    def _collect_copy_out(self, out: OutMessage) -> None:
        copy = self._store.read_offsets(out.topic, out.queue_id, [out.offset])[0]
        origin = origin_of(out.topic, out.group)
        if copy is not None and origin is not None:
            self._collect_original(out.group, origin, copy, _Due(copy.reconsume_times + 1, out.pop_ms, out.visible_ms))
        else:
            self._lost += 1

    # --- copies that wait for their retry

    def _collect_copies(self, positions: Mapping[QueueKey, int]) -> None:
        for topic in self._store.topics():
            if not topic.startswith(RETRY_PREFIX):
                continue
            for group in [each.name for each in self._groups]:
                origin = origin_of(topic, group)
                if origin is None or (origin and self._topics.find(origin) is None):
                    continue
                for queue_id in self._store.queue_ids(topic):
                    first, end = self._store.queue_range(topic, queue_id)
                    start = max(first, positions.get((group, topic, queue_id), first))
                    for copy in self._messages(topic, queue_id, start, end):
                        self._collect_copy(group, origin, copy, self._now_ms)
                    self._delivery.reset(group, topic, queue_id, end)

    def _collect_delayed_copies(self) -> None:
        """Copies on their way to a retry topic. They stay where they are; Apache would deliver them, were it to serve
        the store again."""
        delays = (self._store.load_config("delayOffset") or {}).get("offsetTable", {})
        for queue_id in self._store.queue_ids(SCHEDULE_TOPIC):
            first, end = self._store.queue_range(SCHEDULE_TOPIC, queue_id)
            start = max(first, int(delays.get(str(queue_id + 1), first)))
            delay_ms = DELAY_LEVELS_MS[min(queue_id, len(DELAY_LEVELS_MS) - 1)]
            for copy in self._messages(SCHEDULE_TOPIC, queue_id, start, end):
                target = copy.properties.get(properties.REAL_TOPIC, "")
                if target.startswith(RETRY_PREFIX):
                    self._collect_copy(target.removeprefix(RETRY_PREFIX), "", copy, copy.store_ms + delay_ms)

    def _collect_copy(self, group: str, origin: str, copy: StoredMessage, visible_ms: int) -> None:
        owner = copy.properties.get("ORIGIN_GROUP", group)
        if owner == group:
            due = _Due(max(copy.reconsume_times, 1), min(copy.store_ms, visible_ms), visible_ms)
            self._collect_original(group, origin, copy, due)

    def _collect_original(self, group: str, origin: str, copy: StoredMessage, due: _Due) -> None:
        original = self._original_of(copy, origin or copy.properties.get(properties.RETRY_TOPIC, ""))
        if original is None:
            self._lost += 1
        else:
            self._collect((group, original.topic, original.queue_id), original.queue_offset, due)

    def _original_of(self, copy: StoredMessage, topic: str) -> StoredMessage | None:
        """By the physical offset in the copy's properties (classic), or by the id its producer gave it (POP)."""
        named = copy.properties.get(properties.ORIGIN_MESSAGE_ID, "")
        if len(named) >= _PLAIN_OFFSET_ID_DIGITS:
            try:
                found = self._store.read_at(parse_offset_message_id(named)[2])
            except ValueError:
                found = None
            if found is not None and found.topic == topic:
                return found
        unique = copy.properties.get(properties.UNIQ_KEY)
        if not unique:
            return None
        with_id = self._store.query_by_key(topic, unique, SAME_ID_MESSAGES_MAX, 0, ALL_TIME_MS)
        return next((each for each in with_id if each.properties.get(properties.UNIQ_KEY) == unique), None)

    # --- leases

    def _collect(self, key: QueueKey, offset: int, due: _Due) -> None:
        """The latest delivery of a message is the one that counts."""
        known = self._due.setdefault(key, {}).get(offset)
        if known is None or known.attempt <= due.attempt:
            self._due[key][offset] = due

    def _lease(self) -> int:
        """Below the group's position only: what is above is handed out anyway."""
        count = 0
        for key, due in self._due.items():
            group, topic, queue_id = key
            known = {each.queue_id: each.next_offset for each in self._delivery.positions(group, topic)}
            first = self._store.queue_range(topic, queue_id)[0]
            for offset, (attempt, pop_ms, visible_ms) in sorted(due.items()):
                if not first <= offset < known.get(queue_id, 0) or self._delivery.find_lease(key, offset) is not None:
                    continue
                event = Leased(key, (offset,), (attempt,), pop_ms, visible_ms, known[queue_id])
                self._delivery.apply(event)
                self._delivery.journal.add(event)
                count += 1
        return count

    # --- reading

    def _messages(
        self, topic: str, queue_id: int, start: int, end: int, tags: Collection[str] = ()
    ) -> Iterator[StoredMessage]:
        """The messages of a queue in [start, end); with `tags` those whose tag has the hash of one of them."""
        hashes = frozenset(map(tag_hash, tags)) or None
        while start < end:
            result = self._store.read(topic, queue_id, start, READ_RECORDS, READ_BYTES, hashes)
            yield from result.messages
            if result.next_offset <= start:
                log.error("a queue cannot be read on", extra=fields(topic=topic, queue=queue_id, offset=start))
                return
            start = result.next_offset


def without_apaches_own(topics: Iterable[Topic]) -> list[Topic]:
    """Leaves out what Apache makes anew at every start and no client is to see: the templates named for cluster and
    broker, the cluster's topic for replies, and transaction topics of its newest versions."""
    found = list(topics)
    templates = {topic.name for topic in found if topic.permission & INHERIT and not is_system_topic(topic.name)}
    replies = {template + REPLY_SUFFIX for template in templates}
    return [
        topic
        for topic in found
        if topic.name not in templates | replies
        and (is_system_topic(topic.name) or not topic.name.startswith(APACHE_SYSTEM_PREFIX))
    ]


def origin_of(topic: str, group: str) -> str | None:
    """The topic whose messages of this group are retried in this retry topic: empty when the copies themselves say
    (classic), None when the retry topic is not the group's. POP's names are ambiguous; the caller asks whether the
    topic exists."""
    own = retry_topic(group)
    if topic == own:
        return ""
    for separator in _RETRY_SEPARATORS:
        if topic.startswith(own + separator):
            return topic[len(own) + 1 :]
    return None
