"""One exchange: an official client sends a manifest while its own simple and push consumer receive, all in processes of
their own; then every field of every message is compared.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from official.client_process import ClientProcess, Line
from official.manifest import Manifest
from official.raw_client import RawClient

START_TIMEOUT_S = 40.0
SEND_TIMEOUT_S = 90.0
RECEIVE_TIMEOUT_S = 90.0
WARM_UP_INTERVAL_S = 0.25

# Clock readings of two processes on one machine, rounded to milliseconds.
BORN_TOLERANCE_MS = 2


@dataclass(frozen=True)
class Client:
    """How to run an official client, and what it cannot do by itself (client-protocol.md, quirks)."""

    name: str
    command: Sequence[str]
    # Keeps the order of keys; others hold them in a set before they send.
    ordered_keys: bool = True
    # Tells the application the queue offset of what it received.
    tells_offset: bool = True
    # The born time it sends or tells is cut to a multiple of this.
    born_resolution_ms: int = 1
    # Tells the application the queue offset of what it sent.
    receipt_tells_offset: bool = True
    # The consumers it has.
    modes: tuple[str, ...] = ("simple", "push")


@dataclass(frozen=True)
class Place:
    """Where an exchange happens. `plain` is for the warm-up messages, which no official client sends."""

    endpoint: str
    plain: str
    tls: bool
    topic: str
    simple_group: str
    push_group: str


@dataclass(frozen=True)
class Outcome:
    sent: dict[int, Line]
    """By id of the manifest."""
    received: dict[str, list[Line]]
    """By mode."""


def exchange(client: Client, place: Place, manifest: Manifest, folder: Path, settled: Callable[[], object]) -> Outcome:
    """Runs the programs. AssertionError when one fails or is not through in time.

    `settled` is called when both consumers have everything and before any client stops.
    """

    def start(mode: str, group: str) -> ClientProcess:
        options = {
            "endpoint": place.endpoint,
            "tls": str(place.tls).lower(),
            "mode": mode,
            "topic": place.topic,
            "group": group,
            "manifest": str(manifest.path),
            "blob": str(manifest.blob_path),
        }
        return ClientProcess(f"{client.name} {mode}", client.command, options, folder / mode)

    groups = {"simple": place.simple_group, "push": place.push_group}
    with ExitStack() as running:
        consumers = {mode: running.enter_context(start(mode, groups[mode])) for mode in client.modes}
        for consumer in consumers.values():
            consumer.wait("started", timeout_s=START_TIMEOUT_S)
        warm_up(place, list(consumers.values()))
        sender = running.enter_context(start("send", "unused"))
        sender.wait("done", timeout_s=SEND_TIMEOUT_S)
        sent = {line["id"]: line for line in sender.events("sent")}
        everything = {line["message_id"] for line in sent.values()}
        received = {
            mode: consumer.wait("received", has_all(everything), timeout_s=RECEIVE_TIMEOUT_S)
            for mode, consumer in consumers.items()
        }
        settled()
        processes = (sender, *consumers.values())
        for process in processes:
            process.end_input()
        codes = {process.name: process.wait_exit() for process in processes}
    assert set(codes.values()) == {0}, codes
    return Outcome(sent, received)


def warm_up(place: Place, consumers: list[ClientProcess]) -> None:
    """Sends until each consumer has received one: from then on its group has positions, and nothing passes it by.

    A group starts at the end of a topic, at its first receive, and clients begin to receive some time after start.
    """
    received = threading.Event()

    def send() -> None:
        with RawClient(place.plain) as raw:
            address = raw.broker_address(place.topic)
            while not received.wait(WARM_UP_INTERVAL_S):
                raw.send(place.topic, b"warm-up", {"warm-up": "yes"}, address)

    sender = threading.Thread(target=send, name="warm-up")
    sender.start()
    try:
        for consumer in consumers:
            consumer.wait("warm", timeout_s=START_TIMEOUT_S)
    finally:
        received.set()
        sender.join()


def has_all(message_ids: set[str]) -> Callable[[list[Line]], bool]:
    return lambda lines: len(lines) >= len(message_ids) and message_ids <= {line["message_id"] for line in lines}


def compare(client: Client, place: Place, manifest: Manifest, outcome: Outcome) -> None:
    """Every field of every message, as sent and as received by both consumers."""
    assert sorted(outcome.sent) == [entry.id for entry in manifest.entries]
    ids = [line["message_id"] for line in outcome.sent.values()]
    assert len(set(ids)) == len(ids), "the client gave two messages one id"
    expected = {
        outcome.sent[entry.id]["message_id"]: {
            "topic": place.topic,
            "size": entry.size,
            "sha256": manifest.sha256(entry),
            "tag": entry.tag,
            "keys": entry.keys if client.ordered_keys else sorted(entry.keys),
            "properties": entry.properties,
            "attempt": 1,
        }
        for entry in manifest.entries
    }
    assert set(outcome.received) == set(client.modes)
    for mode, lines in outcome.received.items():
        repeated = {key: count for key, count in Counter(line["message_id"] for line in lines).items() if count > 1}
        assert not repeated, f"{client.name} {mode}: delivered more than once"
        assert {line["message_id"] for line in lines} == set(expected)
        wrong = [
            (line["message_id"], name, line.get(name), value)
            for line in lines
            for name, value in expected[line["message_id"]].items()
            if seen(client, name, line.get(name)) != value
        ]
        assert not wrong, f"{client.name} {mode}: {len(wrong)} fields differ: {wrong[:5]}"
        compare_origin(client, mode, lines, outcome)


def seen(client: Client, name: str, value: object) -> object:
    return sorted(value) if name == "keys" and isinstance(value, list) and not client.ordered_keys else value


def compare_origin(client: Client, mode: str, lines: list[Line], outcome: Outcome) -> None:
    """Born time within the send, the host named, and the queue offset the receipt named."""
    by_message_id = {line["message_id"]: line for line in outcome.sent.values()}
    for line in lines:
        receipt = by_message_id[line["message_id"]]
        earliest = receipt["before_ms"] - BORN_TOLERANCE_MS - client.born_resolution_ms + 1
        latest = receipt["after_ms"] + BORN_TOLERANCE_MS
        assert earliest <= line["born_ms"] <= latest, (client.name, mode, line, receipt)
        assert line["born_host"], (client.name, mode, line)
        assert not client.receipt_tells_offset or receipt["offset"] >= 0, receipt
        if client.tells_offset:
            assert line["offset"] == receipt["offset"], (client.name, mode, line, receipt)
