"""The bounds, questions and answers of the delivery core (`delivery.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from razzo.broker.lease_queue import LeaseQueue
from razzo.protocol import limits


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Bounds of the core, and what reaching them means."""

    #: leases of one (group, topic, queue); no new message is handed out from it above, due ones still are
    leases_per_queue_max: int = 20_000
    #: dead letters found by one claim; the rest is found by the next one
    dead_per_claim_max: int = 32
    #: how much longer an owned lease lasts at each deadline; the last step repeats
    renew_steps_ms: tuple[int, ...] = limits.AUTO_RENEW_STEPS_MS
    #: how long an owner may hold a message in all; then it comes again
    renew_total_ms: int = limits.AUTO_RENEW_TOTAL_MS_MAX
    #: how long the leases of a lost owner still last
    owner_lost_ms: int = limits.RELEASE_INVISIBLE_MS
    #: deadlines that may be out of date before the list is made anew
    stale_deadlines_max: int = 4_096


class Policy(NamedTuple):
    """What a consumer group's settings say about handing out. `attempts_max` is the number of deliveries in all."""

    fifo: bool
    attempts_max: int


class DeadLetter(NamedTuple):
    offset: int
    attempts: int


class Claim(NamedTuple):
    """What a receive may take from one queue: `again` and `repeat` are offsets to read one by one, and up to
    `new_max` messages may be read from `new_from` on. `repeat` keeps its attempt number."""

    queue: LeaseQueue
    again: list[int]
    repeat: list[int]
    dead: list[DeadLetter]
    new_from: int
    new_max: int

    @property
    def empty(self) -> bool:
        return not (self.again or self.repeat or self.dead or self.new_max)


class Position(NamedTuple):
    queue_id: int
    floor: int
    next_offset: int
    outstanding: int


class Lag(NamedTuple):
    """A group's backlog on a topic: `ready` never handed out, `in_flight` leased or waiting for a retry."""

    ready: int
    in_flight: int

    @property
    def messages(self) -> int:
        return self.ready + self.in_flight
