"""Whether a service that died is started again (a core: no clock, no processes).

`razzo up` serves one machine and has nobody above it, so a service that dies after it was ready is started again: a
broker killed for memory comes back by itself and keeps every acknowledged message. The number is bounded, because a
service that keeps dying has a cause that starting again does not remove, and its log should be read instead. A service
that dies before it was ready is never started again: wrong settings stay wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOW_MS = 600_000
"""Deaths older than this are forgotten."""

DELAY_FIRST_MS = 100
DELAY_MAX_MS = 5_000


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Start the service after `delay_ms`; `attempt` of `attempts_max` in the window."""

    delay_ms: int
    attempt: int
    attempts_max: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop everything; `reason` continues the sentence "<service> died (<how>)"."""

    reason: str


@dataclass(slots=True)
class Restarts:
    """The deaths of one service and what follows from them."""

    attempts_max: int
    deaths_ms: list[int] = field(default_factory=list)

    def died(self, now_ms: int, was_ready: bool) -> StartAgain | GiveUp:
        """Decides about a death at `now_ms` (any monotonic clock in milliseconds)."""
        if not was_ready:
            return GiveUp("before it was ready")
        self.deaths_ms = [ms for ms in self.deaths_ms if now_ms - ms < WINDOW_MS]
        if len(self.deaths_ms) >= self.attempts_max:
            if self.attempts_max == 0:
                return GiveUp("and is not to be started again (--restarts 0)")
            return GiveUp(f"more than {self.attempts_max} times in {WINDOW_MS // 60_000} minutes")
        delay_ms = min(DELAY_MAX_MS, DELAY_FIRST_MS << len(self.deaths_ms))
        self.deaths_ms.append(now_ms)
        return StartAgain(delay_ms, len(self.deaths_ms), self.attempts_max)
