"""Consumer groups of this broker: their settings and what is a valid change.

Core. Names are effective names. Changes come out as events for the log (`GroupPut`, `GroupDeleted`), as for topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from razzo.broker.delivery_values import Policy
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.names import check_group

RETRY_TIMES_MAX = 10_000
RETRY_DELAYS_MAX = 100
GROUP_ATTRIBUTES_MAX = 64


class ExponentialRetry(NamedTuple):
    initial_ms: int
    max_ms: int
    multiplier: float


@dataclass(frozen=True, slots=True)
class Group:
    """Settings of a consumer group. Neither `retry_delays_ms` nor `exponential`: RocketMQ's default list."""

    name: str
    fifo: bool = False
    retry_max_times: int = limits.RETRY_TIMES_DEFAULT
    retry_delays_ms: tuple[int, ...] = ()
    exponential: ExponentialRetry | None = None
    consume_enabled: bool = True
    lite_bind_topic: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        return Policy(self.fifo, self.retry_max_times + 1)

    def retry_delay_ms(self, attempt: int) -> int:
        """The wait before the delivery that follows the `attempt`-th one."""
        step = max(attempt, 1) - 1
        if self.exponential is not None:
            curve = self.exponential
            # beyond 64 doublings every curve that grows is at its end; the power itself must stay a float
            return int(min(curve.max_ms, curve.initial_ms * max(curve.multiplier, 1.0) ** min(step, 64)))
        delays = self.retry_delays_ms or limits.DELAY_LEVELS_MS
        return delays[min(step, len(delays) - 1)]


class GroupPut(NamedTuple):
    group: Group


class GroupDeleted(NamedTuple):
    name: str


class GroupExists(RequestRefused):
    """A consumer group of that name is there already."""


class GroupTable:
    """All consumer groups of one broker."""

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        """By name."""
        return iter(sorted(self._groups.values(), key=lambda group: group.name))

    def describe(self) -> str:
        return f"{len(self._groups)} consumer groups"

    def find(self, name: str) -> Group | None:
        return self._groups.get(name)

    def get(self, name: str) -> Group:
        """The group a client names. ILLEGAL_CONSUMER_GROUP for a name that none can have, CONSUMER_GROUP_NOT_FOUND."""
        group = self._groups.get(name)
        if group is None:
            check_group(name)
            raise RequestRefused(Code.CONSUMER_GROUP_NOT_FOUND, f"there is no consumer group {name!r}")
        return group

    def put(self, group: Group, *, update: bool) -> GroupPut:
        """A new group, or with `update` new settings of one."""
        check_group(group.name)
        exists = group.name in self._groups
        if exists and not update:
            raise GroupExists(Code.PRECONDITION_FAILED, f"the consumer group {group.name!r} exists")
        if update and not exists:
            raise RequestRefused(Code.CONSUMER_GROUP_NOT_FOUND, f"there is no consumer group {group.name!r}")
        if not exists and len(self._groups) >= self._groups_max:
            raise RequestRefused(
                Code.PRECONDITION_FAILED, f"there are {len(self._groups)} consumer groups, the most allowed"
            )
        _check(group)
        return GroupPut(group)

    def delete(self, name: str) -> GroupDeleted:
        self.get(name)
        return GroupDeleted(name)

    def apply(self, event: GroupPut | GroupDeleted) -> None:
        if isinstance(event, GroupPut):
            self._groups[event.group.name] = event.group
        else:
            self._groups.pop(event.name, None)


def _check(group: Group) -> None:
    if not 0 <= group.retry_max_times <= RETRY_TIMES_MAX:
        raise _bad(f"retry_max_times is {group.retry_max_times}, must be 0 to {RETRY_TIMES_MAX}")
    if len(group.retry_delays_ms) > RETRY_DELAYS_MAX:
        raise _bad(f"a retry policy has at most {RETRY_DELAYS_MAX} delays, not {len(group.retry_delays_ms)}")
    waits = (*group.retry_delays_ms, *(group.exponential[:2] if group.exponential is not None else ()))
    for wait_ms in waits:
        if not 0 <= wait_ms <= limits.INVISIBLE_MS_MAX:
            raise _bad(f"a retry delay is {wait_ms} ms, must be 0 to {limits.INVISIBLE_MS_MAX} ms")
    if group.exponential is not None:
        curve = group.exponential
        if not 1.0 <= curve.multiplier <= 100.0:
            raise _bad(f"the multiplier of a retry policy is {curve.multiplier}, must be 1 to 100")
        if curve.initial_ms > curve.max_ms:
            raise _bad(f"the first retry delay {curve.initial_ms} ms is longer than the longest, {curve.max_ms} ms")
    if len(group.attributes) > GROUP_ATTRIBUTES_MAX:
        raise _bad(f"a consumer group has at most {GROUP_ATTRIBUTES_MAX} attributes")


def _bad(message: str) -> RequestRefused:
    return RequestRefused(Code.BAD_REQUEST, message)
