"""What may look at calls from outside: authentication, the access log, counters.

Both kinds of server take one `Observers`. An observer that is absent costs a call nothing: the native door counts in C
and looks at these settings once, when it is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from razzo.door.methods import CallInfo, GrpcStatus

LATENCY_BUCKETS = 28
"""Bucket ``i`` counts the calls that took less than ``2**i`` microseconds (and not less than half of it); the last one
counts every longer call, from about 67 seconds up."""


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """One finished call, for the access log. Sizes are those of the protobuf messages, without their gRPC prefixes."""

    path: str
    peer: str
    secure: bool
    status: GrpcStatus
    duration_s: float
    request_bytes: int
    response_bytes: int


AuthenticationHook: TypeAlias = Callable[[CallInfo], None]
"""Looks at the metadata of a call before its handler runs; an `RpcError` ends the call with that status."""

AccessLog: TypeAlias = Callable[[AccessRecord], None]


@dataclass(frozen=True, slots=True)
class Observers:
    """Hooks of a server. `access_log` sees every `access_log_every`-th finished call (1: all of them)."""

    authenticate: AuthenticationHook | None = None
    access_log: AccessLog | None = None
    access_log_every: int = 1
    count_calls: bool = True

    def __post_init__(self) -> None:
        if self.access_log_every < 1:
            raise ValueError(f"access_log_every is {self.access_log_every}, must be 1 or more")


@dataclass(slots=True)
class MethodCounts:
    """Counters of one method since the server was built; calls of unknown paths are not in any of them.

    A call ends once, with the status the server gave it; a call whose client went away ends CANCELLED.
    """

    started: int = 0
    in_flight: int = 0
    by_status: dict[GrpcStatus, int] = field(default_factory=dict)
    latency_buckets: list[int] = field(default_factory=lambda: [0] * LATENCY_BUCKETS)
    latency_sum_s: float = 0.0

    def begin(self) -> None:
        self.started += 1
        self.in_flight += 1

    def end(self, status: GrpcStatus, duration_s: float) -> None:
        self.in_flight -= 1
        self.by_status[status] = self.by_status.get(status, 0) + 1
        self.latency_buckets[latency_bucket(duration_s)] += 1
        self.latency_sum_s += duration_s

    def copy(self) -> MethodCounts:
        return replace(self, by_status=dict(self.by_status), latency_buckets=list(self.latency_buckets))

    @property
    def finished(self) -> int:
        return sum(self.by_status.values())


def latency_bucket(duration_s: float) -> int:
    """The number of the bucket of `MethodCounts.latency_buckets` that a duration falls into."""
    return min(LATENCY_BUCKETS - 1, int(duration_s * 1_000_000).bit_length())
