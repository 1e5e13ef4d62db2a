"""The delivery core: which message of a queue goes to whom, until when, for which time.

A consumer group has, on every queue of a topic, a next offset and a set of leases below it (`lease_queue.py`, with the
table of a message's life). Handing out takes two calls with the store's read between them, on one thread, without a
pause: `claim` says which offsets are due again, which are dead and from where new ones may be read; `grant` puts the
leases in force. A message that is not acknowledged comes again from its own queue offset; nothing is copied to a retry
topic.

Pure: times come in as Unix milliseconds, what the log must know is in `journal`, and whom to wake in `take_woken`.

A group that is ordered (FIFO) gets the next messages of a queue only when all that it holds of it are acknowledged or
have run out, and then the unacknowledged ones first, in order. A repeated receive with the same attempt id gets the
same messages again without a count.

A lease with an owner is prolonged at its deadline, by growing steps, as long as the owner is not reported lost and the
message is not out for more than `renew_total_ms`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from razzo.broker.delivery_events import (
    Acked,
    DeliveryEvent,
    Journal,
    Leased,
    PositionSet,
    QueueKey,
    Rescheduled,
)
from razzo.broker.delivery_values import Claim, DeadLetter, DeliveryLimits, Lag, Policy, Position
from razzo.broker.lease_queue import LeaseQueue, Outcome


class Delivery:
    """Progress of every consumer group on every queue of this broker."""

    def __init__(self, limits: DeliveryLimits | None = None) -> None:
        self.limits = limits or DeliveryLimits()
        self.journal = Journal()
        self._queues: dict[tuple[str, str], dict[int, LeaseQueue]] = {}
        self._deadlines: list[tuple[int, int, LeaseQueue, tuple[int, ...]]] = []  # heap of visible_ms, sequence, ...
        self._sequence = 0
        self._outstanding = 0
        self._owned: dict[str, set[LeaseQueue]] = {}
        self._woken: set[tuple[str, str]] = set()

    def describe(self) -> str:
        """One line for logs and transcripts."""
        queues = sum(len(queues) for queues in self._queues.values())
        return f"{len(self._queues)} subscriptions, {queues} queues, {self._outstanding} leases"

    # --- subscriptions and positions

    def knows(self, group: str, topic: str) -> bool:
        return (group, topic) in self._queues

    def subscribe(self, group: str, topic: str, ends: Mapping[int, int]) -> bool:
        """Fixes where a group that is seen for the first time starts: at `ends`, by queue id. False when it is known.

        A queue that is added to the topic later starts at its first message, whatever it holds by then.
        """
        if self.knows(group, topic):
            return False
        self._queues[group, topic] = {}
        for queue_id, end in sorted(ends.items()):
            self.set_position(group, topic, queue_id, end, drop_leases=False)
        return True

    def set_position(self, group: str, topic: str, queue_id: int, next_offset: int, *, drop_leases: bool) -> None:
        """Moves a group's next offset of a queue: with `drop_leases` anywhere, and leases at or above it are forgotten;
        without it only forward."""
        event = PositionSet((group, topic, queue_id), next_offset, drop_leases)
        self._set_position(event)
        self.journal.add(event)
        self._woken.add((group, topic))

    def reset(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Moves a group on a queue, anywhere, and forgets all it has out of it."""
        queue = self._queue((group, topic, queue_id))
        for offset in list(queue.leases):
            self._end(queue, offset)
        self.set_position(group, topic, queue_id, next_offset, drop_leases=True)

    def positions(self, group: str, topic: str) -> list[Position]:
        queues = self._queues.get((group, topic), {})
        return [
            Position(queue_id, queue.floor, queue.next_offset, len(queue.leases))
            for queue_id, queue in sorted(queues.items())
        ]

    def subscriptions(self) -> Iterator[tuple[str, str]]:
        """Every (group, topic) that has a position."""
        return iter(tuple(self._queues))

    def lag(self, group: str, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Lag | None:
        """Backlog against the readable ranges (first, end) of the topic's queues; None when the group is unknown."""
        queues = self._queues.get((group, topic))
        if queues is None:
            return None
        ready = in_flight = 0
        for queue_id, (first, end) in ranges.items():
            queue = queues.get(queue_id)
            ready += max(0, end - max(first, queue.next_offset if queue is not None else first))
            in_flight += len(queue.leases) if queue is not None else 0
        return Lag(ready, in_flight)

    def forget(self, group: str | None = None, topic: str | None = None) -> None:
        """Drops all progress of a group, or on a topic, or of both. The log knows it by the deletion it records."""
        for key in [key for key in self._queues if group in (None, key[0]) and topic in (None, key[1])]:
            for queue in self._queues.pop(key).values():
                self._outstanding -= len(queue.leases)
                queue.leases.clear()

    # --- handing out

    def claim(
        self, group: str, topic: str, queue_id: int, count: int, now_ms: int, policy: Policy, attempt_id: str = ""
    ) -> Claim:
        """What at most `count` messages of a queue may be. Follow with `grant`, or `give_up` when the read failed."""
        self.expire(now_ms)
        queue = self._queue((group, topic, queue_id))
        repeat = queue.repeatable(attempt_id, now_ms) if policy.fifo else []
        if repeat:
            return Claim(queue, [], repeat, [], queue.next_offset, 0)
        if policy.fifo and queue.blocked(now_ms):
            queue.wanted = True
            return Claim(queue, [], [], [], queue.next_offset, 0)
        again: list[int] = []
        dead: list[DeadLetter] = []
        while len(again) < count and len(dead) < self.limits.dead_per_claim_max:
            offset = queue.next_due(now_ms)
            if offset is None:
                break
            attempts = queue.leases[offset].attempt
            if attempts >= policy.attempts_max:
                dead.append(DeadLetter(offset, attempts))
            else:
                again.append(offset)
        room = self.limits.leases_per_queue_max - len(queue.leases)
        if policy.fifo and len(again) + len(dead) < len(queue.leases):
            room = 0  # earlier messages are due and do not fit: none may overtake them
        queue.wanted = queue.wanted or room <= 0
        return Claim(queue, again, [], dead, queue.next_offset, max(0, min(room, count - len(again))))

    def repeating(self, group: str, topic: str, attempt_id: str, now_ms: int) -> list[int]:
        """The queues of which an ordered group's receive with this attempt id got messages before."""
        queues = self._queues.get((group, topic), {})
        return [queue_id for queue_id, queue in queues.items() if queue.repeatable(attempt_id, now_ms)]

    def give_up(self, claim: Claim) -> None:
        """Undoes a claim that led to nothing."""
        for offset in claim.again:
            claim.queue.mark_due(offset)
        for letter in claim.dead:
            claim.queue.mark_due(letter.offset)

    def grant(
        self,
        claim: Claim,
        *,
        again: Sequence[int],
        done: Sequence[int],
        new: Sequence[int],
        next_offset: int,
        now_ms: int,
        visible_ms: int,
        owner: str = "",
        attempt_id: str = "",
    ) -> dict[int, tuple[int, int]]:
        """Puts the leases of a claim in force: offset -> (attempt, hand-out time).

        `again` are the offsets of `claim.again` that were read, `done` those of `again`, `repeat` and `dead` that are
        over (dead-lettered, gone, filtered out); `new` were read from `claim.new_from` on, and `next_offset` follows
        the last one inspected.
        """
        queue = claim.queue
        for offset in done:
            self._end(queue, offset)
        granted: dict[int, tuple[int, int]] = {}
        for offset in claim.repeat:
            lease = queue.leases.get(offset)
            if lease is not None:
                granted[offset] = (lease.attempt, lease.pop_ms)
                self._reschedule(queue, offset, visible_ms)
        offsets = (*again, *new)
        if offsets:
            attempts = tuple(queue.leases[offset].attempt + 1 for offset in again) + (1,) * len(new)
            event = Leased(queue.key, offsets, attempts, now_ms, visible_ms, max(next_offset, queue.next_offset))
            self._lease(queue, event, owner)
            self.journal.add(event)
            granted.update(zip(offsets, zip(attempts, repeat(now_ms)), strict=False))
            queue.attempt_id, queue.attempt_offsets = attempt_id, offsets
        elif next_offset > queue.next_offset:
            queue.next_offset = next_offset
            self.journal.add(PositionSet(queue.key, next_offset, False))
        return granted

    # --- what consumers say about a delivery

    def ack(self, key: QueueKey, offset: int, attempt: int, pop_ms: int) -> Outcome:
        """Ends a lease. ALREADY when the message is done, STALE when the delivery is not the message's last one."""
        queue = self._find(key)
        if queue is None:
            return Outcome.STALE
        found = queue.match(offset, attempt, pop_ms)
        if isinstance(found, Outcome):
            return found
        self._end(queue, offset)
        return Outcome.DONE

    def change_visible(self, key: QueueKey, offset: int, attempt: int, pop_ms: int, visible_ms: int) -> Outcome:
        """Moves a lease's deadline, and takes it from its owner: from now on only the deadline counts."""
        queue = self._find(key)
        found = queue.match(offset, attempt, pop_ms) if queue is not None else Outcome.STALE
        if queue is None or isinstance(found, Outcome):
            return Outcome.STALE
        found.owner = ""
        queue.forget_attempt()
        self._reschedule(queue, offset, visible_ms)
        return Outcome.DONE

    def find_lease(self, key: QueueKey, offset: int) -> tuple[int, int] | None:
        """(attempt, hand-out time) of the lease on an offset."""
        queue = self._find(key)
        lease = queue.leases.get(offset) if queue is not None else None
        return None if lease is None else (lease.attempt, lease.pop_ms)

    def owner_of(self, key: QueueKey, offset: int) -> str:
        """The client that a lease belongs to; empty when nobody prolongs it."""
        queue = self._find(key)
        lease = queue.leases.get(offset) if queue is not None else None
        return "" if lease is None else lease.owner

    def owner_lost(self, owner: str, now_ms: int) -> None:
        """The leases of a client that is gone end soon."""
        for queue in self._owned.pop(owner, ()):
            for offset, lease in queue.leases.items():
                if lease.owner == owner:
                    lease.owner = ""
                    self._reschedule(queue, offset, min(lease.visible_ms, now_ms + self.limits.owner_lost_ms))

    # --- time

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do next, at the earliest."""
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now_ms: int) -> None:
        """Makes due whatever ran out, and prolongs what its owner still holds."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            visible_ms, _, queue, offsets = heapq.heappop(self._deadlines)
            for offset in offsets:
                lease = queue.leases.get(offset)
                if lease is None or lease.visible_ms != visible_ms:
                    continue
                if lease.owner and now_ms < lease.pop_ms + self.limits.renew_total_ms:
                    steps = self.limits.renew_steps_ms
                    longer_ms = steps[min(lease.renewals, len(steps) - 1)]
                    lease.renewals += 1
                    limit_ms = lease.pop_ms + self.limits.renew_total_ms
                    self._reschedule(queue, offset, min(now_ms + longer_ms, limit_ms))
                else:
                    queue.mark_due(offset)
                    self._woken.add(queue.key[:2])

    def take_woken(self) -> set[tuple[str, str]]:
        """The (group, topic) pairs that may have got something to receive since the last call."""
        woken, self._woken = self._woken, set()
        return woken

    # --- the log

    def apply(self, event: DeliveryEvent) -> None:
        """Replays an event from the log."""
        if isinstance(event, PositionSet):
            self._set_position(event)
            return
        queue = self._queue(event.key)
        if isinstance(event, Leased):
            self._lease(queue, event, "")
        elif isinstance(event, Acked):
            for offset in event.offsets:
                self._outstanding -= queue.end(offset)
        elif event.offset in queue.leases:
            lease = queue.leases[event.offset]
            lease.visible_ms, lease.pop_ms = event.visible_ms, event.pop_ms
            self._add_deadline(event.visible_ms, queue, (event.offset,))

    def snapshot(self) -> Iterator[DeliveryEvent]:
        """Events that rebuild this core. Leases of one deadline and hand-out are one event."""
        for (group, topic), queues in self._queues.items():
            for queue_id, queue in queues.items():
                key = (group, topic, queue_id)
                yield PositionSet(key, queue.next_offset, True)
                runs: dict[tuple[int, int], list[tuple[int, int]]] = {}
                for offset, lease in queue.leases.items():
                    runs.setdefault((lease.pop_ms, lease.visible_ms), []).append((offset, lease.attempt))
                for (pop_ms, visible_ms), leases in runs.items():
                    offsets, attempts = zip(*leases, strict=True)
                    yield Leased(key, offsets, attempts, pop_ms, visible_ms, queue.next_offset)

    def settle(self) -> None:
        """Ends a replay: puts the leases of every queue in rising order again, which a snapshot's runs do not keep."""
        for queues in self._queues.values():
            for queue in queues.values():
                queue.leases = dict(sorted(queue.leases.items()))

    # --- inside

    def _find(self, key: QueueKey) -> LeaseQueue | None:
        queues = self._queues.get(key[:2])
        return None if queues is None else queues.get(key[2])

    def _queue(self, key: QueueKey) -> LeaseQueue:
        queues = self._queues.setdefault(key[:2], {})
        queue = queues.get(key[2])
        if queue is None:
            queue = queues[key[2]] = LeaseQueue(key, 0)
        return queue

    def _set_position(self, event: PositionSet) -> None:
        queue = self._queue(event.key)
        if event.drop_leases:
            self._outstanding -= len(queue.leases)
            queue.cut(event.next_offset)
            self._outstanding += len(queue.leases)
        else:
            queue.next_offset = max(event.next_offset, queue.next_offset)

    def _lease(self, queue: LeaseQueue, event: Leased, owner: str) -> None:
        before = len(queue.leases)
        queue.lease(event, owner)
        queue.next_offset = max(queue.next_offset, event.next_offset)
        self._outstanding += len(queue.leases) - before
        if owner:
            self._owned.setdefault(owner, set()).add(queue)
        self._add_deadline(event.visible_ms, queue, event.offsets)

    def _end(self, queue: LeaseQueue, offset: int) -> None:
        if queue.end(offset):
            self._outstanding -= 1
            self.journal.ack(queue.key, offset)
            if queue.wanted and queue.may_hand_out(self.limits.leases_per_queue_max):
                queue.wanted = False
                self._woken.add(queue.key[:2])

    def _reschedule(self, queue: LeaseQueue, offset: int, visible_ms: int) -> None:
        lease = queue.leases[offset]
        lease.visible_ms = visible_ms
        self._add_deadline(visible_ms, queue, (offset,))
        self.journal.add(Rescheduled(queue.key, offset, visible_ms, lease.pop_ms))

    def _add_deadline(self, visible_ms: int, queue: LeaseQueue, offsets: tuple[int, ...]) -> None:
        if len(self._deadlines) > self.limits.stale_deadlines_max + 2 * self._outstanding:
            self._rebuild_deadlines()
        self._sequence += 1
        heapq.heappush(self._deadlines, (visible_ms, self._sequence, queue, offsets))

    def _rebuild_deadlines(self) -> None:
        self._deadlines = []
        for queues in self._queues.values():
            for queue in queues.values():
                for offset, lease in queue.leases.items():
                    self._sequence += 1
                    self._deadlines.append((lease.visible_ms, self._sequence, queue, (offset,)))
        heapq.heapify(self._deadlines)
