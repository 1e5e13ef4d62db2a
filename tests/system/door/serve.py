"""A process of its own that serves the probe, for fuzzing, leak checks and the bench.

    PYTHONPATH=tests/system python -m door.serve native|grpcio [limit=value ...]

Prints one JSON line with its ports when it is ready. For each line on standard input it prints one JSON line with its
resident bytes and counters (after a full garbage collection); it stops when its standard input ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from typing import Any

import uvloop
from door.probe import Probe, path

from razzo.door import open_server
from razzo.door.methods import BatchCall, Call, answer_many
from razzo.door.server import DoorLimits, Server

ANSWER = bytes(123)
"""What the bench methods answer: the size of a SendMessage answer."""


def constant_batch(calls: list[BatchCall]) -> None:
    for call in calls:
        call.answer(ANSWER)


def constant_batch_at_once(calls: list[BatchCall]) -> None:
    answer_many(calls, [ANSWER] * len(calls))


async def constant_coroutine(request: bytes, call: Call) -> bytes:
    return ANSWER


def state(server: Server) -> dict[str, Any]:
    gc.collect()
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * 4096
    counts = server.method_counts()
    return {
        "resident_bytes": resident,
        "in_flight": sum(one.in_flight for one in counts.values()),
        "finished": {
            name: {status.name: count for status, count in one.by_status.items()}
            for name, one in counts.items()
            if one.started
        },
    }


async def serve(kind: str, limits: DoorLimits) -> None:
    probe = Probe()
    probe.table.unary_batch(path("BenchBatch"), constant_batch)
    probe.table.unary_batch(path("BenchMany"), constant_batch_at_once)
    probe.table.unary(path("BenchUnary"), constant_coroutine)
    server = open_server(kind, probe.table, limits, None)
    bound = await server.start("127.0.0.1", 0)
    print(json.dumps({"port": bound.plain_port}), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps(state(server)), flush=True)
    await server.stop(0)


def main() -> None:
    kind, *settings = sys.argv[1:]
    limits = {key: json.loads(value) for key, value in (setting.split("=") for setting in settings)}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(kind, DoorLimits(**limits)))


if __name__ == "__main__":
    main()
