"""What is typed on the command line, as values."""

from __future__ import annotations

import click
import pytest

from razzo.cli.up import split_settings
from razzo.cli.values import DURATION, DURATIONS, ENDPOINT, PAIR, milliseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 500),
        ("1s", 1_000),
        ("1.5s", 1_500),
        ("2m", 120_000),
        ("3h", 10_800_000),
        ("1d", 86_400_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert milliseconds(text) == expected
    assert DURATION.convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 s x", "1w", "1s2", "٣s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration"):
        DURATION.convert(text, None, None)


def test_lists_of_durations() -> None:
    assert DURATIONS.convert("1s,5s,1m", None, None) == (1_000, 5_000, 60_000)
    with pytest.raises(click.BadParameter, match="'' is no duration"):
        DURATIONS.convert("1s,", None, None)


@pytest.mark.parametrize("text", ["127.0.0.1:8081", "broker:1", "[::1]:65535"])
def test_endpoints(text: str) -> None:
    assert ENDPOINT.convert(text, None, None) == text


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1", ":8081", "host:", "host:0", "host:65536", "host:x", "::1:8081", "host:²"]
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not HOST:PORT"):
        ENDPOINT.convert(text, None, None)


def test_pairs() -> None:
    assert PAIR.convert("a=b=c", None, None) == ("a", "b=c")
    assert PAIR.convert("a=", None, None) == ("a", "")
    for text in ("a", "=b"):
        with pytest.raises(click.BadParameter, match="is not KEY=VALUE"):
            PAIR.convert(text, None, None)


def test_settings_go_to_their_service() -> None:
    pairs = (("broker.flush_linger_us", "5"), ("nameserver.x", ""), ("broker.y-z", "a"))
    assert split_settings(pairs) == {
        "broker": [("flush-linger-us", "5"), ("y-z", "a")],
        "nameserver": [("x", "")],
    }
    for key in ("flush", "brokers.flush", "broker."):
        with pytest.raises(click.BadParameter, match=r"is not SERVICE\.NAME"):
            split_settings(((key, "1"),))
