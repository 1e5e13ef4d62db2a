"""The broker: its store, its cores, and the single writer of its log.

Everything here runs on the loop's thread. The desks (`sending`, `receiving`, `settling`, `pulling`, `admin_api`) ask
the cores and append through this class; it sees to it that what they caused happens: waiting receives are woken,
changed progress reaches the log, and leases that run out become due in time.

Changed progress is one record per turn of the loop as long as there are few, and one every few milliseconds under load:
a record that a crash takes back only means redelivery.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from razzo.broker.delivery import Delivery
from razzo.broker.groups import Group, GroupTable
from razzo.broker.handles import ReceiptHandles
from razzo.broker.long_polls import LongPolls
from razzo.broker.state_codec import SettingsEvent
from razzo.broker.state_log import StateLog
from razzo.broker.topics import Topic, TopicTable
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RequestRefused
from razzo.protocol.names import check_group, is_system_topic
from razzo.runtime.clients import Client, ClientTable
from razzo.runtime.logs import fields
from razzo.storage import Appended, AppendedRequests, DiskFull, MessageTooLarge, NewMessage, Store, StoreError

log = logging.getLogger(__name__)

TIMER_MS_MAX = 60_000
"""Longest sleep of the lease timer: a clock that was set back does not hold leases for longer."""
STATE_INTERVAL_S = 0.005
"""Between two records of changed progress under load; what a kill of the process may take back, and so redeliver."""
STATE_BURST = 64
"""Records of changed progress that may be appended without that pause, after a time with fewer."""
STATE_EVENTS_MAX = 1_000
"""Changes that do not wait for the pause."""


Announce: TypeAlias = "Callable[[], asyncio.Future[None]]"
"""Tells every nameserver of the topics and groups of now; the future is done when all connected ones know them."""


class BrokerOptions(NamedTuple):
    """What of the settings the broker itself needs."""

    name: str
    auto_create_topics: bool
    auto_create_topic_queues: int
    auto_create_groups: bool
    flush_timeout_s: float


class Broker:
    """Built by `main.py`; `start` after the store is open and the state recovered."""

    def __init__(
        self,
        options: BrokerOptions,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        delivery: Delivery,
        state: StateLog,
        handles: ReceiptHandles,
        clients: ClientTable,
        long_polls: LongPolls,
        clock_ms: Callable[[], int],
    ) -> None:
        self.options = options
        self.store = store
        self.topics = topics
        self.groups = groups
        self.delivery = delivery
        self.state = state
        self.handles = handles
        self.clients = clients
        self.long_polls = long_polls
        self.now_ms = clock_ms
        self._announce: Announce | None = None
        self._unconfirmed: deque[tuple[int, frozenset[str]]] = deque()
        self._state_due: asyncio.Handle | None = None
        self._state_credit = float(STATE_BURST)
        self._state_credit_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._creating = asyncio.Lock()
        self._files_stale = True
        self._positions_stale = True

    # --- life

    def start(self, announce: Announce) -> None:
        self._announce = announce
        self.store.attach_loop(asyncio.get_running_loop())
        self.store.on_confirmed(self._confirmed)
        self.touched()

    async def stop(self) -> None:
        """Brings all progress to the log and into the snapshot and JSON files. No call is in work any more."""
        for scheduled in (self._timer, self._state_due):
            if scheduled is not None:
                scheduled.cancel()
        self._files_stale = self._positions_stale = True  # the loop that writes them may have been cut off half-way
        try:
            await self.state.snapshot()
        except (OSError, StoreError):
            log.exception("snapshot not written: the next start replays the log")
        await self.write_files()

    # --- the single writer

    def append(self, messages: Sequence[NewMessage]) -> list[Appended]:
        """Appends to the log. TOO_MANY_REQUESTS for a full disk, MESSAGE_BODY_TOO_LARGE, INTERNAL_SERVER_ERROR."""
        with _store_faults():
            appended = self.store.append(messages)
        self._wake_when_confirmed(end_of(appended[-1]), {message.topic for message in messages})
        return appended

    def append_requests(self, requests: list[bytes], hosts: list[bytes]) -> AppendedRequests:
        """Appends what the kernel takes of SendMessage requests. Raises as `append`."""
        with _store_faults():
            appended = self.store.append_requests(requests, hosts)
        if appended.end:
            self._wake_when_confirmed(appended.end, appended.topics)
        return appended

    async def wait_flushed(self, end: int) -> bool:
        """Whether the log is on disk up to `end` in time. INTERNAL_SERVER_ERROR when the disk failed."""
        with _store_faults():
            return await self.store.wait_flushed(end, self.options.flush_timeout_s)

    def touched(self) -> None:
        """Call after anything that moved the delivery core: wakes, logs, sets the timer."""
        delivery = self.delivery
        self.long_polls.wake_all(delivery.take_woken())
        if self._state_due is None:
            if len(delivery.journal):
                self._schedule_state()
        elif len(delivery.journal) >= STATE_EVENTS_MAX:
            self._state_due.cancel()
            self._append_state()
        self._set_timer()

    def _schedule_state(self) -> None:
        """At the end of this turn of the loop, or after the pause when there were many records of late."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        earned = (now_s - self._state_credit_s) / STATE_INTERVAL_S
        self._state_credit = min(self._state_credit + earned, STATE_BURST)
        self._state_credit_s = now_s
        if self._state_credit >= 1:
            self._state_credit -= 1
            self._state_due = loop.call_soon(self._append_state)
        else:
            self._state_due = loop.call_later(STATE_INTERVAL_S, self._append_state)

    def _append_state(self) -> None:
        self._state_due = None
        self._positions_stale = True
        self.state.append_pending()

    def _wake_when_confirmed(self, end: int, topics: Collection[str]) -> None:
        """Also when nobody waits yet: a receive that comes before the confirmation must be woken by it."""
        if self.store.confirm_offset >= end:
            for topic in topics:
                self.long_polls.wake_topic(topic)
        else:
            self._unconfirmed.append((end, frozenset(topics)))

    def _confirmed(self, confirm_offset: int) -> None:
        woken: set[str] = set()
        while self._unconfirmed and self._unconfirmed[0][0] <= confirm_offset:
            woken |= self._unconfirmed.popleft()[1]
        for topic in woken:
            self.long_polls.wake_topic(topic)

    # --- leases that run out

    def _set_timer(self) -> None:
        due_ms = self.delivery.next_deadline_ms()
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        wait_ms = min(max(due_ms - self.now_ms(), 0) + 1, TIMER_MS_MAX)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.delivery.expire(self.now_ms())
        self.touched()

    # --- topics and groups

    async def change(self, *events: SettingsEvent, until_known: bool = False) -> None:
        """Brings changes of topics and groups into effect, tells the nameservers, and returns when they are on disk;
        with `until_known` also not before every connected nameserver has taken them in. BrokerFault."""
        end = self.state.commit(*events)
        self._files_stale = True
        self.touched()
        known = self._announce() if self._announce is not None else None
        if not await self.wait_flushed(end):
            raise BrokerFault(Code.MASTER_PERSISTENCE_TIMEOUT, "in effect, but not known to be on disk yet")
        if known is not None and until_known:
            await known

    async def ensure_topic(self, name: str) -> Topic:
        """The topic a client names, made now when the setting allows it. TOPIC_NOT_FOUND, ILLEGAL_TOPIC."""
        if self.may_create_topic(name):
            async with self._creating:
                if self.topics.find(name) is None:
                    await self.change(
                        self.topics.create_on_the_fly(name, self.options.auto_create_topic_queues), until_known=True
                    )
        return self.topics.get(name)

    def may_create_topic(self, name: str) -> bool:
        """Whether `ensure_topic` would try to make it: dead letter and retry topics are not for clients to make."""
        return self.options.auto_create_topics and self.topics.find(name) is None and not name.startswith("%")

    async def ensure_group(self, name: str) -> Group:
        """The consumer group a client names, made now when the setting allows it. CONSUMER_GROUP_NOT_FOUND."""
        if self.groups.find(name) is None and self.options.auto_create_groups:
            check_group(name)
            async with self._creating:
                if self.groups.find(name) is None:
                    await self.change(self.groups.put(Group(name), update=False))
        return self.groups.get(name)

    def subscribe(self, group: str, topic: Topic) -> None:
        """Fixes where a group starts on a topic, the first time it is seen: at the end of what is stored by now."""
        if self.delivery.knows(group, topic.name) or is_system_topic(topic.name):
            return
        ends = {queue_id: self.store.queue_range(topic.name, queue_id)[1] for queue_id in range(topic.read_queues)}
        self.delivery.subscribe(group, topic.name, ends)
        self.touched()

    def subscribe_waiting(self, topic: Topic) -> None:
        """A topic was made: consumers that named it before start at its beginning."""
        for client in self.clients:
            if client.group and topic.name in client.subscriptions:
                self.subscribe(client.group, topic)

    # --- clients

    def clients_gone(self, gone: Iterable[Client]) -> None:
        """What they had out comes again soon."""
        now_ms = self.now_ms()
        for client in gone:
            log.info("client gone", extra=fields(client=client.client_id, group=client.group))
            self.delivery.owner_lost(client.client_id, now_ms)
        self.touched()

    # --- upkeep, called by main's loops

    async def write_files(self) -> None:
        """RocketMQ's JSON files, where they are behind. A failure is logged and tried again."""
        if self.state.files_are_source:
            return
        try:
            if self._files_stale:
                self._files_stale = False
                await self.state.write_settings_files()
            if self._positions_stale:
                self._positions_stale = False
                await self.state.write_position_file()
        except (OSError, StoreError):
            self._files_stale = self._positions_stale = True
            log.exception("config files not written")

    async def snapshot_if_due(self) -> None:
        if self.state.snapshot_due:
            try:
                await self.state.snapshot()
            except (OSError, StoreError):
                log.exception("snapshot not written")


@contextmanager
def _store_faults() -> Iterator[None]:
    """The store's refusals as those of the public API."""
    try:
        yield
    except DiskFull as full:
        raise BrokerFault(Code.TOO_MANY_REQUESTS, f"nothing can be stored: {full}") from full
    except MessageTooLarge as large:
        raise RequestRefused(Code.MESSAGE_BODY_TOO_LARGE, str(large)) from large
    except StoreError as error:
        log.error("append failed", exc_info=error)
        raise BrokerFault(Code.INTERNAL_SERVER_ERROR, "the message could not be stored") from error


def end_of(appended: Appended) -> int:
    """The log offset at which a record ends."""
    return appended.physical_offset + appended.size
