"""Values as they are typed on the command line: durations, addresses, properties."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def milliseconds(text: str) -> int:
    """`500ms`, `1.5s`, `2m`, `3h`, `1d` as whole milliseconds. ValueError when it is none of these."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration: a number and one of ms, s, m, h, d")
    return round(float(found[1]) * _UNITS_MS[found[2]])


class Duration(click.ParamType[int]):
    """A duration; the command gets whole milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return milliseconds(value)
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


class Durations(click.ParamType[tuple[int, ...]]):
    """Durations separated by commas; the command gets a tuple of whole milliseconds."""

    name = "durations"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(milliseconds(part) for part in value.split(","))
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


class Endpoint(click.ParamType[str]):
    """HOST:PORT; an IPv6 address stands in brackets. The command gets the text."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        host, colon, port = str(value).rpartition(":")
        bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
        if not colon or not host or bare_ipv6 or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            self.fail(f"{value!r} is not HOST:PORT", param, ctx)
        return str(value)


class Pair(click.ParamType[tuple[str, str]]):
    """KEY=VALUE; the command gets both."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


DURATION = Duration()
DURATIONS = Durations()
ENDPOINT = Endpoint()
PAIR = Pair()
