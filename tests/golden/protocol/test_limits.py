"""The numbers clients rely on, written out once more (client-protocol.md 4.4 and 14)."""

from __future__ import annotations

import pytest

from razzo.protocol import limits

MINUTE = 60_000
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MESSAGE_BODY_BYTES_MAX", 4_194_304),
        ("MESSAGE_PROPERTY_COUNT_MAX", 128),
        ("MESSAGE_PROPERTIES_BYTES_MAX", 16_384),
        ("STORED_PROPERTIES_BYTES_MAX", 32_767),
        ("TOPIC_CHARS_MAX", 127),
        ("DERIVED_TOPIC_CHARS_MAX", 255),
        ("GROUP_CHARS_MAX", 120),
        ("MESSAGE_GROUP_BYTES_MAX", 63),
        ("LITE_TOPIC_BYTES_MAX", 64),
        ("DELIVERY_DELAY_MS_MAX", 86_400_000),
        ("TRANSACTION_RECOVERY_MS_MAX", 3_600_000),
        ("ACK_ENTRIES_MAX", 1_024),
        ("REQUEST_BYTES_MAX", 136_314_880),
        ("RECEIVE_MESSAGES_MAX", 32),
        ("POLL_MS_MIN", 5_000),
        ("POLL_MS_MAX", 20_000),
        ("INVISIBLE_MS_MIN", 10_000),
        ("INVISIBLE_MS_MAX", 43_200_000),
        ("FIFO_BATCH_POSITIONS_MAX", 64),
        ("AUTO_RENEW_INITIAL_MS", 60_000),
        ("AUTO_RENEW_TOTAL_MS_MAX", 10_800_000),
        ("PRODUCER_ATTEMPTS", 3),
        ("PRODUCER_BACKOFF_INITIAL_MS", 10),
        ("PRODUCER_BACKOFF_MS_MAX", 1_000),
        ("RETRY_TIMES_DEFAULT", 16),
        ("CLIENT_EXPIRY_MS", 120_000),
        ("CLIENT_RELAY_TIMEOUT_MS", 5_000),
        ("TRANSACTION_CHECK_FIRST_MS", 6_000),
        ("TRANSACTION_CHECK_INTERVAL_MS", 30_000),
        ("TRANSACTION_CHECKS_MAX", 15),
        ("CLIENT_PROPERTY_COUNT_MAX", 32),
        ("CLIENT_PROPERTY_KEY_CHARS_MAX", 64),
        ("CLIENT_PROPERTY_VALUE_CHARS_MAX", 256),
        ("CLIENT_PROPERTIES_BYTES_MAX", 4_096),
    ],
)
def test_number(name: str, value: int) -> None:
    assert getattr(limits, name) == value


def test_delay_levels() -> None:
    unit_ms = {"s": 1_000, "m": MINUTE, "h": 60 * MINUTE}
    assert [int(level[:-1]) * unit_ms[level[-1]] for level in DELAY_LEVELS.split()] == list(limits.DELAY_LEVELS_MS)
    assert limits.AUTO_RENEW_STEPS_MS == (MINUTE, 3 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 60 * MINUTE)
