"""Random damage to a killed store's log, and what the twin's recovery makes of the same bytes.

The twin scans the files as they are and says which records are sound, which ranges are damage and where the log ends.
The Store must end there, serve exactly those records, and leave every byte below the end as it found it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from random_messages import random_batch
from store_pair import Pair
from twin import recovery
from twin.records import Record

from razzo.storage import StoredMessage

GATE_SEEDS = 40
BATCHES = 8


def zeros(rng: random.Random, data: bytearray, at: int) -> None:
    """A torn page: zeros up to some place."""
    end = min(len(data), at + rng.choice([1, 20, 300, len(data)]))
    data[at:end] = bytes(end - at)


def noise(rng: random.Random, data: bytearray, at: int) -> None:
    end = min(len(data), at + rng.choice([1, 8, 200]))
    data[at:end] = rng.randbytes(end - at)


def bit(rng: random.Random, data: bytearray, at: int) -> None:
    data[at] ^= 1 << rng.randrange(8)


def older_bytes(rng: random.Random, data: bytearray, at: int) -> None:
    """A misdirected write: bytes of another place, records included, which then do not name their own place."""
    size = min(rng.choice([91, 300]), len(data) - at)
    source = rng.randrange(len(data) - size + 1)
    data[at : at + size] = bytes(data[source : source + size])


def damage_log(rng: random.Random, end: int) -> Callable[[Path], None]:
    """Damages one to three places below `end`; the checkpoint goes, so that the bytes alone decide."""

    def damage(root: Path) -> None:
        (root / "checkpoint").unlink(missing_ok=True)
        for _ in range(rng.randrange(1, 4)):
            path = rng.choice([path for path in sorted((root / "commitlog").iterdir()) if int(path.name) < end])
            data = bytearray(path.read_bytes())
            room = min(len(data), end - int(path.name))
            rng.choice([zeros, noise, bit, older_bytes])(rng, data, rng.randrange(room))
            path.write_bytes(data)

    return damage


def raw_facts(message: StoredMessage | Record) -> tuple[object, ...]:
    """What does not depend on the text of broken names and properties being text."""
    return message.topic, message.queue_id, message.queue_offset, message.size, message.store_ms, bytes(message.body)


def log_of(root: Path) -> dict[int, bytes]:
    return {int(path.name): path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


@pytest.mark.parametrize("seed", range(int(os.environ.get("RAZZO_MODEL_DAMAGES", GATE_SEEDS))))
def test_recovery_decides_as_the_twin_does(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    pair = Pair(tmp_path / "first", append_crc_property=seed % 2 == 1, commit_log_file_bytes=2048)
    try:
        for _ in range(BATCHES):
            pair.append(random_batch(rng))
        before: dict[int, bytes] = {}
        break_it = damage_log(rng, pair.twin.end)

        def damage(root: Path) -> None:
            break_it(root)
            before.update(log_of(root))

        pair.reopen_after_kill(tmp_path / "second", damage)
        outcome = recovery.recover(before)
        assert pair.store.max_physical_offset == outcome.end, outcome.damage
        wanted = {record.physical_offset: raw_facts(record) for record in outcome.records}
        for offset in sorted({record.physical_offset for record in pair.twin.records} | set(wanted)):
            found = pair.store.read_at(offset)
            assert (None if found is None else raw_facts(found)) == wanted.get(offset), f"{offset}; {outcome.damage}"
        after = b"".join(log_of(pair.root).values())
        assert after[: outcome.end] == b"".join(before.values())[: outcome.end]
    finally:
        pair.close()
