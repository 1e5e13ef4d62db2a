"""ReceiveMessage: pops messages for a consumer group, waits when there are none, hands out leases.

A pop goes over all queues of the topic, from a queue that changes with every pop, and ignores the queue the client
names: some clients only ever name queue 0. A client that goes away while its answer is written gets its messages back
into the queue at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker import filters, outgoing
from razzo.broker.broker import Broker
from razzo.broker.dead_letters import DeadLetters, Reason
from razzo.broker.delivery_values import Claim
from razzo.broker.filters import TagFilter
from razzo.broker.groups import Group
from razzo.broker.handles import context_of
from razzo.broker.outgoing import Batch, Delivered, HandedOut
from razzo.broker.topics import Topic, check_served
from razzo.door.methods import Call
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.properties import TAGS
from razzo.runtime.requests import client_id_of, names_of, namespace_of, request_id_of
from razzo.runtime.status import status_of
from razzo.storage import StoredMessage, tag_hash

READ_BYTES_MAX = 4 << 20
"""Bytes of messages that one pop reads from one queue; the first message always comes."""
EMPTY_ROUNDS_MAX = 64
"""Looks at one queue that bring nothing but messages the filter drops, before other calls get their turn."""


class Wanted(NamedTuple):
    """A receive that was checked. `owner` is the client whose life prolongs the leases, or empty."""

    group: Group
    topic: Topic
    filter: TagFilter
    tag_hashes: frozenset[int] | None
    batch: int
    invisible_ms: int
    owner: str
    attempt_id: str


class ReceiveDesk:
    """Serves the streams of ReceiveMessage, decoded by `ClientApi`."""

    def __init__(self, broker: Broker, dead_letters: DeadLetters) -> None:
        self._broker = broker
        self._dead_letters = dead_letters
        self._frames = outgoing.ReceiveFrames(broker.handles)
        self._turn = 0

    async def refuse(self, error: RequestRefused, call: Call) -> None:
        await call.write_raw(outgoing.empty_frames(status_of(error), self._broker.now_ms()))

    async def handle(self, request: service_pb2.ReceiveMessageRequest, call: Call) -> None:
        broker = self._broker
        try:
            wanted = await self._check(request, call)
            delivered = await self._wait_for(wanted, _poll_s(request, call))
        except Exception as error:
            await call.write_raw(outgoing.empty_frames(status_of(error, request_id_of(call)), broker.now_ms()))
            return
        if not delivered:
            await call.write_raw(outgoing.empty_frames(outgoing.no_message_status(), broker.now_ms()))
            return
        await self._hand_out(call, wanted, request.message_queue.topic, delivered)

    async def _hand_out(
        self, call: Call, wanted: Wanted, topic: definition_pb2.Resource, delivered: list[HandedOut]
    ) -> None:
        broker = self._broker
        context = context_of(wanted.group.name, wanted.topic.name)
        written = False
        try:
            batch = Batch(topic, context, delivered, wanted.invisible_ms, broker.now_ms())
            await call.write_raw(self._frames.of(batch))
            written = True
        finally:
            if not written:
                self._take_back(wanted, delivered)

    def _take_back(self, wanted: Wanted, delivered: list[HandedOut]) -> None:
        now_ms = self._broker.now_ms()
        for message, attempt, pop_ms in delivered:
            key = (wanted.group.name, wanted.topic.name, message.queue_id)
            self._broker.delivery.change_visible(key, message.queue_offset, attempt, pop_ms, now_ms)
        self._broker.touched()

    # --- check

    async def _check(self, request: service_pb2.ReceiveMessageRequest, call: Call) -> Wanted:
        broker = self._broker
        client_id = client_id_of(call)
        tag_filter = filters.parse(request.filter_expression.type, request.filter_expression.expression)
        invisible_ms = _invisible_ms(request)
        if request.batch_size < 1:
            raise RequestRefused(Code.BAD_REQUEST, f"the batch size is {request.batch_size}, must be at least 1")
        group_name, topic_name = names_of(request.group, request.message_queue.topic, namespace_of(call))
        # Only a request that nothing is wrong with may make a topic or a group.
        topic = await broker.ensure_topic(topic_name)
        group = await broker.ensure_group(group_name)
        check_readable(topic, group)
        broker.clients.uses(client_id, topic.name, broker.now_ms(), group.name)
        broker.subscribe(group.name, topic)
        return Wanted(
            group,
            topic,
            tag_filter,
            hashes_of(tag_filter),
            min(request.batch_size, limits.RECEIVE_MESSAGES_MAX),
            invisible_ms,
            client_id if request.auto_renew else "",
            request.attempt_id,
        )

    # --- wait

    async def _wait_for(self, wanted: Wanted, poll_s: float) -> list[HandedOut]:
        broker = self._broker
        key = (wanted.group.name, wanted.topic.name)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + poll_s
        while True:
            delivered, paused = await self._pop(wanted)
            if delivered:
                broker.long_polls.wake(key)  # there may be more, for the next one
                return delivered
            remaining_s = deadline - loop.time()
            if paused and remaining_s > 0:
                continue  # a message may have come to a queue that was looked at before the pause
            if remaining_s <= 0 or not await broker.long_polls.wait(key, remaining_s):
                return []
            wanted = self._refreshed(wanted)

    def _refreshed(self, wanted: Wanted) -> Wanted:
        """Settings may have changed, or the topic may be gone, while the receive waited."""
        topic = self._broker.topics.get(wanted.topic.name)
        group = self._broker.groups.get(wanted.group.name)
        check_readable(topic, group)
        self._broker.subscribe(group.name, topic)
        return wanted._replace(topic=topic, group=group)

    # --- pop

    async def _pop(self, wanted: Wanted) -> tuple[list[HandedOut], bool]:
        """One look at every queue of the topic, and whether others had their turn during it."""
        delivered: list[HandedOut] = []
        paused = False
        now_ms = self._broker.now_ms()
        try:
            for queue_id in self._queues(wanted, now_ms):
                for _ in range(EMPTY_ROUNDS_MAX):
                    found, more = await self._pop_queue(wanted, queue_id, wanted.batch - len(delivered), now_ms)
                    delivered += found
                    if found or not more:
                        break
                    paused = True
                    await asyncio.sleep(0)
                if len(delivered) >= wanted.batch:
                    break
        except BaseException:
            self._take_back(wanted, delivered)
            raise
        self._broker.touched()
        return delivered, paused

    def _queues(self, wanted: Wanted, now_ms: int) -> Sequence[int]:
        if wanted.group.fifo and wanted.attempt_id:
            repeating = self._broker.delivery.repeating(wanted.group.name, wanted.topic.name, wanted.attempt_id, now_ms)
            if repeating:
                return repeating
        count = wanted.topic.read_queues
        self._turn += 1
        return [(self._turn + step) % count for step in range(count)]

    async def _pop_queue(self, wanted: Wanted, queue_id: int, count: int, now_ms: int) -> tuple[list[HandedOut], bool]:
        """Messages of one queue, and whether another look may bring some though this one brought none."""
        delivery = self._broker.delivery
        group, topic = wanted.group, wanted.topic
        claim = delivery.claim(group.name, topic.name, queue_id, count, now_ms, group.policy, wanted.attempt_id)
        if claim.empty:
            return [], False
        if claim.dead:
            await self._bury(wanted, claim)
            return [], True
        try:
            return self._grant(wanted, claim, now_ms)
        except BaseException:
            delivery.give_up(claim)
            raise

    def _grant(self, wanted: Wanted, claim: Claim, now_ms: int) -> tuple[list[HandedOut], bool]:
        """Reads what was claimed and puts the leases in force, without a pause between claim and grant."""
        store, topic, queue_id = self._broker.store, wanted.topic.name, claim.queue.key[2]
        old: dict[int, StoredMessage] = {}
        done: list[int] = []
        wanted_again = [*claim.again, *claim.repeat]
        if wanted_again:
            for offset, message in zip(wanted_again, store.read_offsets(topic, queue_id, wanted_again), strict=True):
                if message is None or not wanted.filter.matches(message.properties.get(TAGS)):
                    done.append(offset)
                else:
                    old[offset] = message
        new: list[StoredMessage] = []
        next_offset, more = claim.new_from, False
        if claim.new_max:
            result = store.read(topic, queue_id, claim.new_from, claim.new_max, READ_BYTES_MAX, wanted.tag_hashes)
            next_offset = result.next_offset
            new = result.messages
            if wanted.filter.tags is not None:
                new = [each for each in new if wanted.filter.matches(each.properties.get(TAGS))]
            more = not new and next_offset != claim.new_from
        if next_offset < claim.new_from:  # the log was cut below the group's position
            self._broker.delivery.set_position(*claim.queue.key, next_offset, drop_leases=True)
            return [], True
        granted = self._broker.delivery.grant(
            claim,
            again=[offset for offset in claim.again if offset in old],
            done=done,
            new=[each.queue_offset for each in new],
            next_offset=next_offset,
            now_ms=now_ms,
            visible_ms=now_ms + wanted.invisible_ms,
            owner=wanted.owner,
            attempt_id=wanted.attempt_id,
        )
        delivered: list[HandedOut] = [Delivered(each, *granted[each.queue_offset]) for each in old.values()]
        delivered += zip(new, repeat(1), repeat(now_ms), strict=False)
        return delivered, more or bool(done)

    async def _bury(self, wanted: Wanted, claim: Claim) -> None:
        """Moves the claim's dead letters to the group's dead letter topic and ends their leases."""
        delivery, key = self._broker.delivery, claim.queue.key
        delivery.give_up(claim)
        await self._dead_letters.ensure_topic(wanted.group)
        offsets = [letter.offset for letter in claim.dead]
        messages = self._broker.store.read_offsets(wanted.topic.name, key[2], offsets)
        letters = []
        for letter, message in zip(claim.dead, messages, strict=True):
            lease = delivery.find_lease(key, letter.offset)
            if lease is not None and lease[0] == letter.attempts and message is not None:
                letters.append((message, letter.attempts))
        if letters:
            self._dead_letters.store(wanted.group, letters, Reason.ATTEMPTS)
        for letter in claim.dead:
            lease = delivery.find_lease(key, letter.offset)
            if lease is not None and lease[0] == letter.attempts:
                delivery.ack(key, letter.offset, *lease)
        self._broker.touched()


def check_readable(topic: Topic, group: Group) -> None:
    """FORBIDDEN when the topic or the group is closed to consumers."""
    if not topic.readable:
        raise RequestRefused(Code.FORBIDDEN, f"the topic {topic.name!r} has no read permission")
    check_served(topic)
    if not group.consume_enabled:
        raise RequestRefused(Code.FORBIDDEN, f"consumption is switched off for the group {group.name!r}")


def hashes_of(tag_filter: TagFilter) -> frozenset[int] | None:
    """What the store compares; hashes collide, so the exact test follows."""
    return None if tag_filter.tags is None else frozenset(tag_hash(tag) for tag in tag_filter.tags)


def _invisible_ms(request: service_pb2.ReceiveMessageRequest) -> int:
    if request.auto_renew:
        return limits.AUTO_RENEW_INITIAL_MS
    invisible_ms = request.invisible_duration.ToMilliseconds()
    if not limits.INVISIBLE_MS_MIN <= invisible_ms <= limits.INVISIBLE_MS_MAX:
        raise RequestRefused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisible duration is {invisible_ms} ms, "
            f"must be {limits.INVISIBLE_MS_MIN} to {limits.INVISIBLE_MS_MAX} ms",
        )
    return invisible_ms


def _poll_s(request: service_pb2.ReceiveMessageRequest, call: Call) -> float:
    """How long to wait for messages: what the client asks for, in bounds, and well before its deadline
    (client-protocol.md 5.2)."""
    remaining_s = call.time_remaining()
    if request.HasField("long_polling_timeout"):
        poll_ms = float(request.long_polling_timeout.ToMilliseconds())
    elif remaining_s is not None:
        poll_ms = remaining_s * 1000 - REQUEST_TIMEOUT_MS / 2
    else:
        poll_ms = limits.POLL_MS_MAX
    poll_ms = min(max(poll_ms, limits.POLL_MS_MIN), limits.POLL_MS_MAX)
    if remaining_s is not None:
        poll_ms = min(poll_ms, remaining_s * 1000 - limits.POLL_RESERVE_MS)
    return max(poll_ms, 0.0) / 1000


REQUEST_TIMEOUT_MS = 3_000
"""What clients add to the time of a long poll for their deadline."""
