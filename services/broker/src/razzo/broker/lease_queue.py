"""One consumer group's progress on one queue: the next offset to hand out and the leases below it.

Life of a message in a group, by the event that comes (rows) and where the message is (columns):

==============  ==================  =====================  =======================  ==================
event           not handed out      leased                 due (lease ran out)      done
==============  ==================  =====================  =======================  ==================
hand out        leased, attempt 1   (never offered)        leased, attempt + 1      (never offered)
deadline        --                  due                    --                       --
ack, same       --                  done                   done                     done (said OK again)
ack, other      refused             refused                refused                  done (said OK again)
change, same    --                  leased until then      leased until then        refused
too many tries  --                  --                     done, as a dead letter   --
reset           as the offset says  done                   done                     as the offset says
log was cut     as the offset says  forgotten above it     forgotten above it       as the offset says
==============  ==================  =====================  =======================  ==================

*Same* means that the caller's handle names this delivery: equal attempt and equal hand-out time. A message is *done*
when its offset is below `next_offset` and has no lease.
"""

from __future__ import annotations

import heapq
from enum import Enum

from razzo.broker.delivery_events import Leased, QueueKey


class Lease:
    """A message handed out. Times in Unix milliseconds."""

    __slots__ = ("attempt", "owner", "pop_ms", "renewals", "visible_ms")

    def __init__(self, attempt: int, pop_ms: int, visible_ms: int, owner: str) -> None:
        self.attempt = attempt
        self.pop_ms = pop_ms
        self.visible_ms = visible_ms
        self.owner = owner
        """The client whose life prolongs the lease; empty when only its deadline counts."""
        self.renewals = 0


class Outcome(Enum):
    """What became of a request that names a delivery."""

    DONE = "done"
    ALREADY = "already"
    STALE = "stale"


class LeaseQueue:
    """State of one (group, topic, queue). `leases` is in rising order of offset, because new leases are only made at
    `next_offset`, which never falls while there are leases."""

    __slots__ = ("_due", "_in_due", "attempt_id", "attempt_offsets", "key", "leases", "next_offset", "wanted")

    def __init__(self, key: QueueKey, next_offset: int) -> None:
        self.key = key
        self.next_offset = next_offset
        self.leases: dict[int, Lease] = {}
        self._due: list[int] = []  # heap, each offset once; entries are checked against `leases` when they come out
        self._in_due: set[int] = set()
        self.attempt_id = ""
        self.attempt_offsets: tuple[int, ...] = ()
        self.wanted = False
        """A receive found the queue blocked or full: tell when it may have something again."""

    @property
    def floor(self) -> int:
        """The lowest offset that is not done."""
        return next(iter(self.leases), self.next_offset)

    def lease(self, event: Leased, owner: str) -> None:
        """Puts leases in force, new ones at or above `next_offset` or the next try of those that exist."""
        leases = self.leases
        _, offsets, attempts, pop_ms, visible_ms, _ = event
        for offset, attempt in zip(offsets, attempts, strict=True):
            existing = leases.get(offset)
            if existing is None:
                leases[offset] = Lease(attempt, pop_ms, visible_ms, owner)
                continue
            existing.attempt = attempt
            existing.pop_ms = pop_ms
            existing.visible_ms = visible_ms
            existing.owner = owner
            existing.renewals = 0

    def end(self, offset: int) -> bool:
        """Forgets a lease; False when there is none."""
        return self.leases.pop(offset, None) is not None

    def match(self, offset: int, attempt: int, pop_ms: int) -> Lease | Outcome:
        """The lease that a handle names, or why there is none."""
        lease = self.leases.get(offset)
        if lease is None:
            return Outcome.ALREADY if offset < self.next_offset else Outcome.STALE
        if lease.attempt != attempt or lease.pop_ms != pop_ms:
            return Outcome.STALE
        return lease

    def mark_due(self, offset: int) -> None:
        if offset not in self._in_due:
            self._in_due.add(offset)
            heapq.heappush(self._due, offset)

    def next_due(self, now_ms: int) -> int | None:
        """Takes out the lowest due offset; None when none is due."""
        while self._due:
            offset = heapq.heappop(self._due)
            self._in_due.discard(offset)
            lease = self.leases.get(offset)
            if lease is not None and lease.visible_ms <= now_ms:
                return offset
        return None

    def blocked(self, now_ms: int) -> bool:
        """Whether a FIFO group has to wait: some message is still being worked on, or waits for its retry."""
        return any(lease.visible_ms > now_ms for lease in self.leases.values())

    def may_hand_out(self, leases_max: int) -> bool:
        """Whether an ended lease may have opened the queue: the last one in work ended, or there is room again. May be
        true too often, when the due list holds offsets that are no longer due."""
        return len(self.leases) <= len(self._due) or len(self.leases) == leases_max - 1

    def repeatable(self, attempt_id: str, now_ms: int) -> list[int]:
        """The offsets handed out to this attempt id and still being worked on."""
        if not attempt_id or attempt_id != self.attempt_id:
            return []
        leases = self.leases
        return [offset for offset in self.attempt_offsets if offset in leases and leases[offset].visible_ms > now_ms]

    def cut(self, next_offset: int) -> None:
        """Goes on from `next_offset`; leases at or above it are forgotten."""
        self.next_offset = next_offset
        self.leases = {offset: lease for offset, lease in self.leases.items() if offset < next_offset}
        self.forget_attempt()

    def forget_attempt(self) -> None:
        self.attempt_id = ""
        self.attempt_offsets = ()
