"""kill -9 of the broker under load, again and again: what it acknowledged is there, and nothing torn is ever read.

Every other round kills `razzo up` instead, and all services with it. What was written to the page cache outlives a
process, so the same holds when sends are answered before the flush.

RAZZO_KILL_ROUNDS (20) and RAZZO_KILL_SEED (a fresh one, printed) change the run.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
import zlib
from collections.abc import Callable

import pytest
from durability.load import Load, Promises, is_whole
from durability.reading import Pulled, pull_queue, queue_end
from official.raw_client import RawClient
from razzo_cluster import Cluster

ROUNDS = int(os.environ.get("RAZZO_KILL_ROUNDS", "20"))
SEED = int(os.environ.get("RAZZO_KILL_SEED") or secrets.randbelow(1 << 32))

TOPIC = "kill"
QUEUES = 4
LOAD_S = (0.02, 0.6)


class Reader:
    """Everything read so far, and the offsets to go on from."""

    def __init__(self) -> None:
        self.offsets = dict.fromkeys(range(QUEUES), 0)
        self.found: dict[str, tuple[int, int, int]] = {}
        """Message id -> CRC-32 of the body, queue id, queue offset."""

    def read_on(self, endpoint: str) -> list[Pulled]:
        """Reads what is new; checks that it is whole and that offsets follow one another."""
        news: list[Pulled] = []
        with RawClient(endpoint) as raw:
            queues = raw.route(TOPIC)
            assert [queue.id for queue in queues] == list(range(QUEUES))
            for queue in queues:
                end = queue_end(raw, queue)
                start = self.offsets[queue.id]
                assert end >= start, f"queue {queue.id} lost messages that were read before: {start} -> {end}"
                pulled = pull_queue(raw, queue, start, end)
                offsets = [one.message.system_properties.queue_offset for one in pulled]
                assert offsets == list(range(start, end)), f"queue {queue.id} has holes"
                self.offsets[queue.id] = end
                news += pulled
        for one in news:
            system = one.message.system_properties
            assert is_whole(one.message.body), f"torn record at queue {one.queue_id} offset {system.queue_offset}"
            crc = zlib.crc32(one.message.body)
            self.found[system.message_id] = (crc, one.queue_id, system.queue_offset)
        return news


def check(promises: Promises, reader: Reader) -> None:
    """Every promise is kept, and nothing was read that nobody sent."""
    lost = [message_id for message_id in promises.acknowledged if message_id not in reader.found]
    assert not lost, f"{len(lost)} of {len(promises.acknowledged)} acknowledged messages are lost: {lost[:3]}"
    for message_id, (crc, queue_id, offset) in reader.found.items():
        assert promises.tried.get(message_id) == crc, f"another body at queue {queue_id} offset {offset}: {message_id}"
    moved = {
        message_id: (offset, reader.found[message_id])
        for message_id, offset in promises.acknowledged.items()
        if reader.found[message_id][2] != offset
    }
    assert not moved, f"{len(moved)} messages are at another offset than acknowledged"


@pytest.mark.timeout(60 + 15 * ROUNDS)
@pytest.mark.parametrize(("flush", "rounds"), [("sync", ROUNDS), ("async", max(1, ROUNDS // 5))])
def test_acknowledged_messages_survive_kill_9(
    cluster_factory: Callable[..., Cluster], capsys: pytest.CaptureFixture[str], flush: str, rounds: int
) -> None:
    rng = random.Random(f"{SEED}-{flush}")
    cluster = cluster_factory(flush=flush).start()
    cluster.must("create-topic", TOPIC, "--queues", str(QUEUES))
    promises, reader = Promises(), Reader()
    restart_s: list[float] = []
    for number in range(rounds):
        load = Load(cluster.endpoint, TOPIC, promises, rng.getrandbits(64))
        try:
            load.wait_for_an_answer()
            moment = threading.Event()
            moment.wait(rng.uniform(*LOAD_S))  # the random moment itself, not a wait for anything
            if number % 2:
                cluster.kill()
            else:
                cluster.kill_broker()
        finally:
            load.stop()
        begun = time.monotonic()
        cluster.start()
        restart_s.append(time.monotonic() - begun)
        reader.read_on(cluster.endpoint)
        assert not promises.refused, (SEED, number, promises.refused[:3])
        check(promises, reader)
    assert len(promises.acknowledged) >= rounds
    assert cluster.stop() == 0
    figures = [
        f"kill -9 x {rounds}, flush {flush} (seed {SEED}): {len(promises.tried)} sent",
        f"{len(promises.acknowledged)} acknowledged",
        f"{len(reader.found)} read",
        f"restart {min(restart_s):.2f}-{max(restart_s):.2f} s",
    ]
    with capsys.disabled():
        print("\n" + ", ".join(figures))
