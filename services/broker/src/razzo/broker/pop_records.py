"""Which messages the POP consumers of an Apache broker have out, from the records that broker kept of them.

Each receive left a checkpoint (tag ``ck``) and each acknowledgement a record (``ack``, ``bAck``), JSON bodies of
store-and-semantics.md 11.2. A checkpoint whose time ran out was *processed*: what was not acknowledged lies as a copy
in a retry topic. Core.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

CHECKPOINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
TAGS = (CHECKPOINT, ACK, BATCH_ACK)


class PopKey(NamedTuple):
    """What a checkpoint and its acknowledgements have in common."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    broker_name: str


class OutMessage(NamedTuple):
    """A message handed out and not acknowledged; `topic` may be a retry topic. Times in Unix milliseconds."""

    group: str
    topic: str
    queue_id: int
    offset: int
    pop_ms: int
    visible_ms: int


class _Checkpoint(NamedTuple):
    offsets: tuple[int, ...]
    acked_bits: int
    invisible_ms: int


class PopLedger:
    """Takes the records in any order, each any number of times (they pass through two topics)."""

    def __init__(self) -> None:
        self._checkpoints: dict[PopKey, _Checkpoint] = {}
        self._acked: dict[PopKey, set[int]] = {}
        self._processed: set[PopKey] = set()
        self.unreadable = 0
        """Records that are not what their tag says."""

    def take(self, tag: str, body: bytes, *, processed: bool = False) -> None:
        try:
            record = json.loads(body)
            key = PopKey(record["t"], record["c"], int(record["q"]), int(record["so"]), int(record["pt"]),
                         record.get("bn") or "")  # fmt: skip
            if tag == CHECKPOINT:
                self._take_checkpoint(key, record, processed)
            else:
                offsets = record["aol"] if tag == BATCH_ACK else [record["ao"]]
                self._acked.setdefault(key, set()).update(map(int, offsets))
        except (ValueError, KeyError, TypeError):
            self.unreadable += 1

    def _take_checkpoint(self, key: PopKey, record: dict[str, Any], processed: bool) -> None:
        if processed:
            self._processed.add(key)
            return
        steps = record.get("d") or range(int(record["n"]))  # without "d" the offsets are consecutive
        offsets = tuple(key.start_offset + int(step) for step in steps)
        self._checkpoints[key] = _Checkpoint(offsets, int(record.get("bm") or 0), int(record["it"]))

    def out(self) -> Iterator[OutMessage]:
        """Every message that is still out."""
        for key, checkpoint in self._checkpoints.items():
            if key in self._processed:
                continue
            acked = self._acked.get(key, set())
            for index, offset in enumerate(checkpoint.offsets):
                if offset not in acked and not checkpoint.acked_bits >> index & 1:
                    visible_ms = key.pop_ms + checkpoint.invisible_ms
                    yield OutMessage(key.group, key.topic, key.queue_id, offset, key.pop_ms, visible_ms)
