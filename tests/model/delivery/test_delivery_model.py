"""The delivery core against an oracle that looks at every message every time, in random histories.

The oracle keeps one entry for each message and knows no heap, no journal and no lists of deadlines. After every step
the answers must be equal, and so must the whole state; now and then the core is rebuilt from its own events, through
their wire form, and must be the same again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from razzo.broker.delivery import Delivery
from razzo.broker.delivery_values import DeliveryLimits, Policy
from razzo.broker.lease_queue import Outcome
from razzo.broker.state_codec import batches, decode
from razzo.v1 import state_pb2

G, T = "group", "topic"
QUEUES = 2
LIMITS = DeliveryLimits(
    leases_per_queue_max=12,
    dead_per_claim_max=3,
    renew_steps_ms=(7, 20),
    renew_total_ms=60,
    owner_lost_ms=3,
    stale_deadlines_max=8,
)
ATTEMPTS_MAX = 4
STEPS = 400


@dataclass
class Out:
    """A message that is out."""

    attempt: int
    pop_ms: int
    visible_ms: int
    owner: str
    renewals: int = 0


class Oracle:
    """One queue of one group, the slow way."""

    def __init__(self) -> None:
        self.next = 0
        self.out: dict[int, Out] = {}
        self.attempt_id = ""
        self.batch: tuple[int, ...] = ()

    def tick(self, now: int) -> None:
        for out in self.out.values():
            if out.visible_ms <= now and out.owner and now < out.pop_ms + LIMITS.renew_total_ms:
                step = LIMITS.renew_steps_ms[min(out.renewals, len(LIMITS.renew_steps_ms) - 1)]
                out.renewals += 1
                out.visible_ms = min(now + step, out.pop_ms + LIMITS.renew_total_ms)

    def claim(self, count: int, now: int, fifo: bool, attempt_id: str):
        """(again, repeat, dead, room)"""
        if fifo and attempt_id and attempt_id == self.attempt_id:
            repeat = [offset for offset in self.batch if offset in self.out and self.out[offset].visible_ms > now]
            if repeat:
                return [], repeat, [], 0
        if fifo and any(out.visible_ms > now for out in self.out.values()):
            return [], [], [], 0
        again, dead = [], []
        for offset in sorted(self.out):
            out = self.out[offset]
            if len(again) == count or len(dead) == LIMITS.dead_per_claim_max:
                break
            if out.visible_ms <= now:
                (dead if out.attempt >= ATTEMPTS_MAX else again).append(offset)
        room = LIMITS.leases_per_queue_max - len(self.out)
        if fifo and len(again) + len(dead) < len(self.out):
            room = 0
        return again, [], dead, max(0, min(room, count - len(again)))

    def state(self):
        return self.next, {
            offset: (out.attempt, out.pop_ms, out.visible_ms) for offset, out in sorted(self.out.items())
        }


def state_of(core: Delivery, queue_id: int):
    queue = core._queues[G, T][queue_id]
    assert list(queue.leases) == sorted(queue.leases), "leases are in rising order"
    return queue.next_offset, {
        offset: (lease.attempt, lease.pop_ms, lease.visible_ms) for offset, lease in queue.leases.items()
    }


class World:
    """Both sides, and the handles that clients hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fifo = seed % 3 == 0
        self.now = 1_000
        self.stored = [0] * QUEUES
        self.core = Delivery(LIMITS)
        self.core.subscribe(G, T, dict.fromkeys(range(QUEUES), 0))
        self.oracles = [Oracle() for _ in range(QUEUES)]
        self.handles: list[tuple[int, int, int, int]] = []
        self.log: list[bytes] = []

    def step(self) -> None:
        steps = (
            (self.store, 3),
            (self.receive, 6),
            (self.acknowledge, 6),
            (self.change, 3),
            (self.wait, 4),
            (self.lose_owner, 1),
            (self.reset, 0.3),
            (self.cut, 0.2),
            (self.rebuild, 0.5),
        )
        chosen = self.random.choices([each for each, _ in steps], [weight for _, weight in steps])[0]
        chosen()
        for queue_id, oracle in enumerate(self.oracles):
            assert state_of(self.core, queue_id) == oracle.state(), chosen.__name__

    def store(self) -> None:
        self.stored[self.random.randrange(QUEUES)] += self.random.randint(1, 6)

    def receive(self) -> None:
        pick = self.random
        queue_id, count = pick.randrange(QUEUES), pick.randint(1, 6)
        attempt_id = pick.choice(["", "a", "b"])
        owner = pick.choice(["", "c1", "c2"])
        oracle = self.oracles[queue_id]
        claim = self.core.claim(G, T, queue_id, count, self.now, Policy(self.fifo, ATTEMPTS_MAX), attempt_id)
        for each in self.oracles:
            each.tick(self.now)
        again, repeat, dead, room = oracle.claim(count, self.now, self.fifo, attempt_id)
        assert (claim.again, claim.repeat, [each.offset for each in claim.dead]) == (again, repeat, dead)
        assert claim.new_max == room
        if pick.random() < 0.1:
            self.core.give_up(claim)
            return
        last = max(claim.new_from, min(self.stored[queue_id], claim.new_from + room))
        inspected = range(claim.new_from, last)
        new = [offset for offset in inspected if pick.random() < 0.8]
        gone = [offset for offset in again if pick.random() < 0.1]
        kept = [offset for offset in again if offset not in gone]
        visible = self.now + pick.randint(0, 30)
        granted = self.core.grant(
            claim,
            again=kept,
            done=[*gone, *dead],
            new=new,
            next_offset=last,
            now_ms=self.now,
            visible_ms=visible,
            owner=owner,
            attempt_id=attempt_id,
        )
        for offset in (*gone, *dead):
            del oracle.out[offset]
        expected = {}
        for offset in repeat:
            oracle.out[offset].visible_ms = visible
            expected[offset] = (oracle.out[offset].attempt, oracle.out[offset].pop_ms)
        for offset in (*kept, *new):
            attempt = oracle.out[offset].attempt + 1 if offset in oracle.out else 1
            oracle.out[offset] = Out(attempt, self.now, visible, owner)
            expected[offset] = (attempt, self.now)
        oracle.next = max(oracle.next, last)
        if kept or new:
            oracle.attempt_id, oracle.batch = attempt_id, (*kept, *new)
        assert granted == expected
        self.handles += [(queue_id, offset, *delivery) for offset, delivery in granted.items()]

    def acknowledge(self) -> None:
        if not self.handles:
            return
        queue_id, offset, attempt, pop_ms = self.random.choice(self.handles)
        oracle = self.oracles[queue_id]
        out = oracle.out.get(offset)
        if out is None:
            expected = Outcome.ALREADY if offset < oracle.next else Outcome.STALE
        elif (out.attempt, out.pop_ms) == (attempt, pop_ms):
            expected = Outcome.DONE
            del oracle.out[offset]
        else:
            expected = Outcome.STALE
        assert self.core.ack((G, T, queue_id), offset, attempt, pop_ms) is expected

    def change(self) -> None:
        if not self.handles:
            return
        queue_id, offset, attempt, pop_ms = self.random.choice(self.handles)
        visible = self.now + self.random.randint(0, 20)
        oracle = self.oracles[queue_id]
        out = oracle.out.get(offset)
        expected = Outcome.STALE
        if out is not None and (out.attempt, out.pop_ms) == (attempt, pop_ms):
            expected = Outcome.DONE
            out.visible_ms, out.owner = visible, ""
            oracle.attempt_id = ""
        assert self.core.change_visible((G, T, queue_id), offset, attempt, pop_ms, visible) is expected

    def wait(self) -> None:
        self.now += self.random.randint(0, 15)
        self.core.expire(self.now)
        for oracle in self.oracles:
            oracle.tick(self.now)

    def lose_owner(self) -> None:
        self.core.owner_lost("c1", self.now)
        for oracle in self.oracles:
            for out in oracle.out.values():
                if out.owner == "c1":
                    out.owner = ""
                    out.visible_ms = min(out.visible_ms, self.now + LIMITS.owner_lost_ms)

    def reset(self) -> None:
        queue_id = self.random.randrange(QUEUES)
        offset = self.random.randint(0, self.stored[queue_id])
        self.core.reset(G, T, queue_id, offset)
        self.oracles[queue_id] = Oracle()
        self.oracles[queue_id].next = offset

    def cut(self) -> None:
        """The store lost its tail in a crash."""
        queue_id = self.random.randrange(QUEUES)
        oracle = self.oracles[queue_id]
        end = self.stored[queue_id] = self.random.randint(0, self.stored[queue_id])
        if end >= oracle.next:
            return
        self.core.set_position(G, T, queue_id, end, drop_leases=True)
        oracle.next, oracle.attempt_id = end, ""
        oracle.out = {offset: out for offset, out in oracle.out.items() if offset < end}

    def rebuild(self) -> None:
        """A restart: from the log, or from a snapshot. Owners and attempt ids are not kept."""
        self.log += batches(self.core.journal.drain())
        if self.random.random() < 0.5:
            self.log = list(batches(self.core.snapshot()))
        self.core = Delivery(LIMITS)
        for record in self.log:
            for encoded in state_pb2.StateBatch.FromString(record).events:
                self.core.apply(decode(encoded))
        self.core.settle()
        for oracle in self.oracles:
            oracle.attempt_id = ""
            for out in oracle.out.values():
                out.owner, out.renewals = "", 0


@pytest.mark.parametrize("seed", range(60))
def test_equal_to_the_oracle(seed):
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    assert world.handles, "the history handed out messages"


@pytest.mark.parametrize("seed", range(5))
def test_everything_is_delivered_in_the_end(seed):
    """A consumer that acknowledges all it gets leaves nothing behind, whatever happened before."""
    world = World(seed * 7 + 1)
    for _ in range(STEPS):
        world.step()
    core, policy = world.core, Policy(world.fifo, attempts_max=1_000_000)
    for _ in range(STEPS):
        world.now += 100
        for queue_id in range(QUEUES):
            claim = core.claim(G, T, queue_id, 32, world.now, policy)
            last = max(claim.new_from, min(world.stored[queue_id], claim.new_from + claim.new_max))
            granted = core.grant(
                claim,
                again=claim.again,
                done=[],
                new=list(range(claim.new_from, last)),
                next_offset=last,
                now_ms=world.now,
                visible_ms=world.now + 10,
            )
            for offset, (attempt, pop_ms) in granted.items():
                core.ack((G, T, queue_id), offset, attempt, pop_ms)
    ranges = {queue_id: (0, stored) for queue_id, stored in enumerate(world.stored)}
    assert core.lag(G, T, ranges).messages == 0
