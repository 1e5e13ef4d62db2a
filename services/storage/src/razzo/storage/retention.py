"""Which log files may go, and whether the disk still takes messages (section 7). Pure: values in, decision out.

    disk used (percent)                files removed                            writes
    ---------------------------------  ---------------------------------------  -------
    below max_used                     expired ones, in the delete hour only    allowed
    max_used .. below clean_forcibly   expired ones, at any hour                allowed
    clean_forcibly .. below full       oldest ones, expired or not              allowed
    full and above                     oldest ones, expired or not              refused

Expired: not written to for retention_hours (file time, as RocketMQ judges). Files go oldest first; the first that may
not go ends the round; the last file never goes; at most delete_batch_files_max a round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    NONE = "nothing to do"
    HOUR = "delete hour"
    SPACE = "disk above the used mark"
    FORCED = "disk above the forced mark"


@dataclass(frozen=True, slots=True)
class RetentionRules:
    retention_hours: int = 72
    delete_hour: int = 4
    disk_max_used_percent: int = 75
    disk_clean_forcibly_percent: int = 85
    disk_full_percent: int = 90
    delete_batch_files_max: int = 10


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """remove: how many of the oldest files go now; writable: whether new messages are taken."""

    remove: int
    reason: Reason
    writable: bool


def decide(
    rules: RetentionRules, mtimes_ms: Sequence[int], hour: int, used_percent: int, now_ms: int
) -> RetentionDecision:
    """`mtimes_ms`: last change of each log file, oldest file first. `hour`: local hour of day, 0..23."""
    reason = Reason.NONE
    if used_percent >= rules.disk_clean_forcibly_percent:
        reason = Reason.FORCED
    elif used_percent >= rules.disk_max_used_percent:
        reason = Reason.SPACE
    elif hour == rules.delete_hour:
        reason = Reason.HOUR
    remove = 0
    if reason is not Reason.NONE:
        for mtime_ms in mtimes_ms[:-1]:
            expired = now_ms - mtime_ms >= rules.retention_hours * 3_600_000
            if remove == rules.delete_batch_files_max or not (expired or reason is Reason.FORCED):
                break
            remove += 1
    return RetentionDecision(remove, reason, used_percent < rules.disk_full_percent)


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What run_retention did; `min_physical_offset` is where the log starts now."""

    reason: Reason
    log_files_removed: int
    queue_files_removed: int
    index_files_removed: int
    used_percent: int
    writable: bool
    min_physical_offset: int
