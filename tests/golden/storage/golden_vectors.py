"""The vectors of vectors.json in the shapes the tests compare: bytes from hex, records from their named facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twin.records import Record, encode_properties, pack_host

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
INPUT: dict[str, Any] = VECTORS["input"]
PROPERTIES = encode_properties(INPUT["properties"])
BORN_HOST = pack_host(*INPUT["born_host"])
STORE_HOST = pack_host(*INPUT["store_host"])


def unhex(text: str | list[str]) -> bytes:
    return bytes.fromhex("".join(text) if isinstance(text, list) else text)


def input_record(**changed: Any) -> Record:
    """The common input of section 21 as the twin's record, with what a variant changes."""
    facts = {
        "topic": INPUT["topic"],
        "queue_id": INPUT["queue_id"],
        "body": INPUT["body"].encode(),
        "properties": PROPERTIES,
        "queue_offset": 0,
        "physical_offset": 0,
        "store_ms": INPUT["store_ms"],
        "store_host": STORE_HOST,
        "born_ms": INPUT["born_ms"],
        "born_host": BORN_HOST,
    }
    return Record(**{**facts, **changed})


def long_topic() -> str:
    head, letter, count, tail = VECTORS["record_v2"]["topic"]
    return head + letter * count + tail


def assert_parts(data: bytes, parts: dict[str, str]) -> None:
    """Each part of `data`, by its hexadecimal place, is what the note says."""
    for place, text in parts.items():
        wanted = unhex(text)
        at = int(place, 16)
        assert data[at : at + len(wanted)].hex() == wanted.hex(), f"at {place}"
