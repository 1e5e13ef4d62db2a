"""What the storage kernel does on one core: `python tests/bench/storage_bench.py [--json] [--quick] [--dir PATH]`.

Appending: messages and bytes a second at 100 B, 1 KiB and 64 KiB bodies, batches of 1 and 64, sync and async flush.
Async figures are the caller's time in `append`; sync figures wait for the disk after each batch. Every message carries
TAGS; the line "keys" adds UNIQ_KEY and KEYS and so two index entries a message. Recovery: a crashed store opened again
with CRC checks. Memory: anonymous memory (beside page cache) after a million messages in a hundred queues.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from razzo.storage import FlushMode, NewMessage, Store, StoreSettings

TAG = b"TAGS\x01TagA\x02"
GIB = 1 << 30
BUDGETS = {
    "append 100 B x 64 async": ("messages_per_s", 1_500_000),
    "append 65536 B x 64 async": ("gb_per_s", 2.0),
    "recovery with crc": ("gb_per_s", 1.5),
    "memory 1 M messages, 100 queues": ("anonymous_mib", 150),
}


@contextmanager
def store_at(root: Path, **settings: Any) -> Iterator[Store]:
    store = Store(root, StoreSettings(**settings))
    store.open()
    try:
        yield store
    finally:
        store.close()


def messages(count: int, body_bytes: int, keys: bool, first: int = 0) -> list[NewMessage]:
    body = os.urandom(body_bytes)
    host = bytes([127, 0, 0, 1, 0, 0, 0x9C, 0x40])
    result = []
    for i in range(first, first + count):
        extra = b"KEYS\x01order-%d\x02UNIQ_KEY\x01C0A8010A000118B4AAC2%012X\x02" % (i, i) if keys else b""
        result.append(NewMessage("BenchTopic", i % 8, body, TAG + extra, 0, 0, 1_700_000_000_000, host))
    return result


def bench_append(root: Path, body_bytes: int, batch: int, total_bytes: int, keys: bool = False) -> dict[str, float]:
    """Time of the calls to append alone, async flush."""
    rounds = max(total_bytes // (batch * (body_bytes + 120)), 20)
    rounds = min(rounds, 600_000 // batch)
    batches = [messages(batch, body_bytes, keys, i * batch) for i in range(64)]
    with store_at(root, flush_mode=FlushMode.ASYNC, index_enabled=True) as store:
        for i in range(64):
            store.append(batches[i])
        cpu, began, written = time.process_time(), time.perf_counter(), store.max_physical_offset
        for i in range(rounds):
            store.append(batches[i & 63])
        took = time.perf_counter() - began
        cpu = time.process_time() - cpu
        written = store.max_physical_offset - written
    return {
        "messages_per_s": rounds * batch / took,
        "gb_per_s": written / took / 1e9,
        "us_per_call": took / rounds * 1e6,
        "messages_per_cpu_s": rounds * batch / cpu,
        "gb_per_cpu_s": written / cpu / 1e9,
        "process_cpu_share": cpu / took,
    }


def bench_sync(root: Path, body_bytes: int, batch: int, seconds: float) -> dict[str, float]:
    """64 senders, each waits for the disk before its next batch: what a group commit gives."""
    senders = 64

    async def sender(store: Store, work: list[NewMessage], until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            last = store.append(work)[-1]
            if not await store.wait_flushed(last.physical_offset + last.size, 60):
                raise RuntimeError("the disk took more than a minute")
            done += len(work)
        return done

    async def run(store: Store) -> dict[str, float]:
        store.attach_loop(asyncio.get_running_loop())
        work = messages(batch, body_bytes, False)
        began, written = time.perf_counter(), store.max_physical_offset
        counts = await asyncio.gather(*(sender(store, work, began + seconds) for _ in range(senders)))
        took = time.perf_counter() - began
        flushes = store.describe()["flushes"]
        return {
            "messages_per_s": sum(counts) / took,
            "gb_per_s": (store.max_physical_offset - written) / took / 1e9,
            "flushes_per_s": flushes / took,
            "messages_per_flush": sum(counts) / max(flushes, 1),
        }

    with store_at(root, flush_mode=FlushMode.SYNC) as store:
        return asyncio.run(run(store))


def bench_recovery(root: Path, body_bytes: int, total_bytes: int) -> dict[str, float]:
    """A store whose process was killed: queues and index gone, the whole log verified and dispatched."""
    with store_at(root, flush_mode=FlushMode.ASYNC) as store:
        work = messages(64, body_bytes, False)
        while store.max_physical_offset < total_bytes:
            store.append(work)
        size = store.max_physical_offset
    (root / "abort").write_text("1")
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    store = Store(root, StoreSettings())
    cpu, began = time.process_time(), time.perf_counter()
    report = store.open()
    took = time.perf_counter() - began
    cpu = time.process_time() - cpu
    store.close()
    if report.bytes_scanned < size - (1 << 21) or report.end != size:
        raise RuntimeError(f"recovery looked at {report.bytes_scanned} of {size} bytes")
    return {
        "gb_per_s": report.bytes_scanned / took / 1e9,
        "gb_per_cpu_s": report.bytes_scanned / cpu / 1e9,
        "s_per_gib": took / (report.bytes_scanned / GIB),
        "records_per_s": report.records_scanned / took,
        "units_rebuilt": report.units_rebuilt,
    }


def bench_read(root: Path, seconds: float) -> dict[str, float]:
    """Reads of 32 messages of 1 KiB through `Store.read`, decoded."""
    with store_at(root, flush_mode=FlushMode.ASYNC) as store:
        for i in range(200):
            store.append(messages(64, 1024, False, i * 64))
        end = store.queue_range("BenchTopic", 0)[1]
        began, offset, count = time.perf_counter(), 0, 0
        while time.perf_counter() - began < seconds:
            result = store.read("BenchTopic", 0, offset, 32)
            count += len(result.messages)
            offset = result.next_offset if result.next_offset < end else 0
        return {"messages_per_s": count / (time.perf_counter() - began)}


def anonymous_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


def bench_memory(root: Path) -> dict[str, float]:
    before = anonymous_mib()
    with store_at(root, flush_mode=FlushMode.ASYNC) as store:
        for i in range(1_000_000 // 64):
            store.append([NewMessage("MemoryTopic", (i * 64 + k) % 100, b"x" * 100, TAG) for k in range(64)])
        return {"anonymous_mib": anonymous_mib(), "before_mib": before}


def run(parent: Path, quick: bool) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    volume = GIB // 4 if quick else GIB

    def measure(name: str, work: Any, *args: Any) -> None:
        root = Path(tempfile.mkdtemp(dir=parent, prefix="razzo-bench-"))
        try:
            results[name] = work(root, *args)
        finally:
            shutil.rmtree(root)
        print(f"{name:38}", "  ".join(f"{k}={v:,.2f}" for k, v in results[name].items()), file=sys.stderr)

    measure("memory 1 M messages, 100 queues", bench_memory)
    for size in (100, 1024, 65_536):
        for batch in (1, 64):
            measure(f"append {size} B x {batch} async", bench_append, size, batch, volume)
    measure("append 100 B x 64 async keys", bench_append, 100, 64, volume, True)
    for size in (100, 1024, 65_536):
        for batch in (1, 64):
            measure(f"append {size} B x {batch} sync", bench_sync, size, batch, 1.0 if quick else 2.0)
    measure("recovery with crc", bench_recovery, 1024, volume)
    measure("recovery with crc, 100 B", bench_recovery, 100, volume // 4)
    measure("read 1 KiB x 32", bench_read, 1.0)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON on stdout")
    parser.add_argument("--quick", action="store_true", help="a quarter of the volume")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the stores (default: the temp folder)")
    arguments = parser.parse_args()
    results = run(arguments.dir or Path(tempfile.gettempdir()), arguments.quick)
    if arguments.json:
        print(json.dumps(results, indent=1))
    for name, (figure, budget) in BUDGETS.items():
        value = results[name][figure]
        met = value <= budget if figure.endswith("mib") else value >= budget
        print(f"{'met   ' if met else 'MISSED'} {name}: {figure} {value:,.2f}, budget {budget:,}", file=sys.stderr)


if __name__ == "__main__":
    main()
