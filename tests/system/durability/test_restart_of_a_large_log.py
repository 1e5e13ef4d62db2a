"""A broker that was killed with 1 GiB in its log comes back with all of it; the time is reported.

The log is written by razzo.storage itself, in a process that is killed like the broker would be.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from durability.reading import pull, queue_end
from official.raw_client import RawClient
from razzo_cluster import Cluster, ClusterFailed

TOPIC = "large"
QUEUES = 4
BODY_BYTES = 64 << 10
LOG_BYTES = 1 << 30
BATCH = 64
HANG_S = 60.0
SAMPLES = 50

# argv: store root, topic, queues, body bytes, log bytes, batch. Each body starts with its number.
WRITER = """
import os, signal, sys
from pathlib import Path
from razzo.storage import FlushMode, NewMessage, Store, StoreSettings
from razzo.protocol.properties import encode_properties

HOST = bytes([127, 0, 0, 1, 0, 0, 0, 1])
root, topic, queues, body_bytes, log_bytes, batch = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
store = Store(root, StoreSettings(flush_mode=FlushMode.ASYNC))
store.open()
begin = store.max_physical_offset
filler = os.urandom(body_bytes)
number = 0
while store.max_physical_offset - begin < log_bytes:
    messages = []
    for _ in range(batch):
        body = number.to_bytes(8, "big") + filler[8:]
        properties = encode_properties({"UNIQ_KEY": f"{number:034d}"})
        messages.append(NewMessage(topic, number % queues, body, properties, born_ms=1, born_host=HOST))
        number += 1
    store.append(messages)
print(number, store.max_physical_offset, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A directory that does not outlive the test."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def store_root(cluster: Cluster) -> Path:
    """The folder with `commitlog` in it."""
    (found,) = [path.parent for path in cluster.data.glob("**/commitlog")]
    return found


def test_restart_after_kill_with_a_log_of_1_gib(
    roomy: Path, cluster_factory: Callable[..., Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = cluster_factory(data=roomy / "cluster").start()
    cluster.must("create-topic", TOPIC, "--queues", str(QUEUES))
    assert cluster.stop() == 0
    arguments = [str(store_root(cluster)), TOPIC, *map(str, (QUEUES, BODY_BYTES, LOG_BYTES, BATCH))]
    written = subprocess.run([sys.executable, "-c", WRITER, *arguments], capture_output=True, text=True, timeout=120)
    assert written.returncode == -signal.SIGKILL, written.stderr
    count, log_end = map(int, written.stdout.split())
    assert (store_root(cluster) / "abort").exists(), "the writer was not killed, it closed"

    begun = time.monotonic()
    try:
        cluster.start(timeout_s=HANG_S)
    except ClusterFailed as failed:
        pytest.fail(f"no restart within {HANG_S:g} s: {failed}")
    restart_s = time.monotonic() - begun

    rng = random.Random(1)
    with RawClient(cluster.endpoint) as raw:
        queues = raw.route(TOPIC)
        assert sum(queue_end(raw, queue) for queue in queues) == count
        for number in {0, count - 1, *rng.sample(range(count), SAMPLES)}:
            messages, _ = pull(raw, queues[number % QUEUES], number // QUEUES)
            assert int.from_bytes(messages[0].body[:8], "big") == number
            assert len(messages[0].body) == BODY_BYTES
    recovery_ms = re.findall(r"duration_ms=(\d+)", cluster.log("broker"))[-1]
    with capsys.disabled():
        print(
            f"\nrestart after kill -9 with {log_end / (1 << 30):.2f} GiB, {count} messages: "
            f"{restart_s:.2f} s for all of `razzo up`, {recovery_ms} ms of it for the store"
        )
