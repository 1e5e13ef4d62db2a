"""The messages the official clients exchange: 0.1 KiB to 4 MiB, with and without tags, keys and properties.

Bodies are parts of one file of random bytes (the blob), so that no program in any language has to make them.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import asdict, dataclass
from pathlib import Path

KIB = 1 << 10
MIB = 1 << 20

SMALLEST_BYTES = 102
SMALL_BYTES_MAX = 8 * KIB
LARGE_COUNT = 12
LARGE_BYTES = (256 * KIB, MIB)
LARGEST_COUNT = 4
# What a server takes at most, and what grpc-js takes at most in an answer, properties and all.
BODY_BYTES_MAX = 4 * MIB
NODE_BODY_BYTES_MAX = 4 * MIB - 64 * KIB

TAGS = (None, "a", "TagB", "tag with spaces", "标签-ü")
PROPERTY_NAMES = ("colour", "Ключ", "x-1", "long", "a=b,c")
LONG_VALUE = "v" * 2_000
VALUES = ("blue", "значение 😄", "0", " padded ", '{"json": [1, 2]}')
KEY_COUNTS = (0, 1, 1, 2, 3)


@dataclass(frozen=True)
class Entry:
    """One message: its body is `size` bytes of the blob from `offset`."""

    id: int
    offset: int
    size: int
    tag: str | None
    keys: list[str]
    properties: dict[str, str]


class Manifest:
    """`count` messages of a seed, and the files that hold them for the programs."""

    def __init__(self, folder: Path, *, count: int, seed: int, largest_bytes: int = BODY_BYTES_MAX) -> None:
        rng = random.Random(seed)
        self.blob = rng.randbytes(largest_bytes + MIB)
        sizes = [largest_bytes] * LARGEST_COUNT
        sizes += [rng.randint(*LARGE_BYTES) for _ in range(LARGE_COUNT)]
        span = math.log(SMALL_BYTES_MAX / SMALLEST_BYTES)
        small = count - len(sizes) - 1
        sizes += [SMALLEST_BYTES, *(int(SMALLEST_BYTES * math.exp(rng.random() * span)) for _ in range(small))]
        rng.shuffle(sizes)
        self.entries = [self._entry(rng, number, size) for number, size in enumerate(sizes)]
        self.path = folder / "manifest.jsonl"
        self.path.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in self.entries))
        self.blob_path = folder / "blob.bin"
        self.blob_path.write_bytes(self.blob)

    def _entry(self, rng: random.Random, number: int, size: int) -> Entry:
        names = rng.sample(PROPERTY_NAMES, rng.randrange(len(PROPERTY_NAMES)))
        return Entry(
            id=number,
            offset=rng.randrange(len(self.blob) - size),
            size=size,
            tag=rng.choice(TAGS),
            keys=[f"key-{number}-{part}" for part in range(rng.choice(KEY_COUNTS))],
            properties={name: self._value(rng, name) for name in names},
        )

    @staticmethod
    def _value(rng: random.Random, name: str) -> str:
        return LONG_VALUE if name == "long" else rng.choice(VALUES)

    def sha256(self, entry: Entry) -> str:
        """Of the entry's body, in lower-case hexadecimal."""
        return hashlib.sha256(self.blob[entry.offset : entry.offset + entry.size]).hexdigest()
