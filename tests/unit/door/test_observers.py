from __future__ import annotations

import pytest

from razzo.door.methods import GrpcStatus
from razzo.door.observers import LATENCY_BUCKETS, MethodCounts, Observers, latency_bucket


@pytest.mark.parametrize(
    ("microseconds", "bucket"),
    [
        (0, 0),
        (0.9, 0),
        (1, 1),
        (1.9, 1),
        (2, 2),
        (3.9, 2),
        (4, 3),
        (1_000, 10),
        (1_024, 11),
        (10**9, LATENCY_BUCKETS - 1),
    ],
)
def test_bucket_i_is_below_two_to_the_i_microseconds(microseconds: float, bucket: int) -> None:
    assert latency_bucket(microseconds / 1e6) == bucket


def test_last_bucket_begins_where_its_documentation_says() -> None:
    assert latency_bucket(67.0) == LATENCY_BUCKETS - 2
    assert latency_bucket(67.2) == LATENCY_BUCKETS - 1
    assert latency_bucket(1e6) == LATENCY_BUCKETS - 1


def test_counts_of_a_call() -> None:
    counts = MethodCounts()
    counts.begin()
    counts.begin()
    assert (counts.started, counts.in_flight, counts.finished) == (2, 2, 0)
    counts.end(GrpcStatus.OK, 3e-6)
    counts.end(GrpcStatus.NOT_FOUND, 1.0)
    assert (counts.started, counts.in_flight, counts.finished) == (2, 0, 2)
    assert counts.by_status == {GrpcStatus.OK: 1, GrpcStatus.NOT_FOUND: 1}
    assert (counts.latency_buckets[2], sum(counts.latency_buckets)) == (1, 2)
    assert counts.latency_sum_s == pytest.approx(1.000003)


def test_copy_is_apart_from_the_original() -> None:
    counts = MethodCounts()
    copy = counts.copy()
    counts.begin()
    counts.end(GrpcStatus.OK, 0.0)
    assert copy == MethodCounts()


def test_access_log_period_is_one_or_more() -> None:
    with pytest.raises(ValueError, match="access_log_every is 0"):
        Observers(access_log_every=0)
