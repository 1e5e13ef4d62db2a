"""The doors side by side: what one unary call costs the server, and how many pass a second.

Each door runs in a process of its own with a trivial handler (the same 123 bytes each time, as SendMessage answers);
`h2load` (Debian `nghttp2-client`) repeats one request with N streams on one connection, with the headers that the Java
client sends. Server CPU is the sum of all threads' run time (`schedstat`, nanoseconds), so a slow client does not blur
it; client and server share the machine, so calls a second is a floor. The doors take turns within each round and the
minimum of the rounds counts, so that the ratio in one table is fair even on a busy machine. The server's own counters
are compared with the calls sent: a refused call cannot pass for a fast one.

    .venv/bin/python tests/bench/door_bench.py [--quick] [--doors native,grpcio] [--handlers batch,many,coroutine]
        [--bodies 128,1024,4096] [--streams 1,8,64,256] [--rounds 3]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "system"))

from door.probe import path
from door.process import DoorProcess

HANDLERS = {"batch": "BenchBatch", "many": "BenchMany", "coroutine": "BenchUnary"}
HEADERS = (
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("user-agent", "grpc-java-netty/1.71.0"),
    ("grpc-accept-encoding", "gzip"),
    ("grpc-timeout", "2999946u"),
    ("x-mq-client-id", "bench@1@0@1"),
    ("x-mq-language", "JAVA"),
    ("x-mq-protocol", "v2"),
    ("x-mq-client-version", "5.2.1"),
    ("x-mq-namespace", "bench"),
    ("x-mq-date-time", "20261121T000000Z"),
    ("x-mq-request-id", "1f0c7d2e-bench"),
)
SECONDS_MAX = 120


@dataclass
class Cell:
    """The best of what was measured for one door, handler, body and number of streams."""

    cpu_us: float = float("inf")
    calls_per_s: float = 0.0

    def take(self, cpu_us: float, calls_per_s: float) -> None:
        self.cpu_us = min(self.cpu_us, cpu_us)
        self.calls_per_s = max(self.calls_per_s, calls_per_s)


def calls_of(kind: str, streams: int, *, quick: bool) -> int:
    """Enough calls for the clock; a door that costs a hundred times as much gets fewer."""
    calls = {"native": 200_000, "grpcio": 6_000}[kind]
    return (
        calls // (10 if streams == 1 else 1) // (4 if quick else 1)
        if kind == "native"
        else calls // (3 if quick else 1)
    )


def measure(door: DoorProcess, handler: str, body: Path, streams: int, calls: int) -> tuple[float, float]:
    """CPU microseconds of the server for each call, and calls a second."""
    method = path(HANDLERS[handler])
    before = door.state()["finished"].get(method, {}).get("OK", 0)
    command = ["h2load", "-n", str(calls), "-c", "1", "-m", str(streams), "-w", "20", "-W", "20", "-d", str(body)]
    for key, value in HEADERS:
        command += ["-H", f"{key}: {value}"]
    began = door.cpu_ns()
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{door.port}{method}"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    used = door.cpu_ns() - began
    found = re.search(r"finished in [\d.]+m?s, ([\d.]+) req/s", done.stdout)
    assert found, done.stdout
    served = door.state()["finished"].get(method, {}).get("OK", 0) - before
    assert served == calls, f"{served} of {calls} calls were served: {done.stdout}"
    return used / calls / 1_000, float(found[1])


def table(cells: dict[tuple[str, str, int, int], Cell], doors: list[str]) -> None:
    heads = "".join(f"{door + ' us':>14}{'calls/s':>12}" for door in doors)
    ratio = f"{'ratio':>9}" if len(doors) == 2 else ""
    print(f"{'handler':<11}{'body':>6}{'streams':>9}{heads}{ratio}")
    for handler, body, streams in dict.fromkeys(key[1:] for key in cells):
        row = [cells[door, handler, body, streams] for door in doors]
        figures = "".join(f"{cell.cpu_us:>14.2f}{cell.calls_per_s:>12,.0f}" for cell in row)
        against = f"{row[1].cpu_us / row[0].cpu_us:>9.1f}" if len(row) == 2 else ""
        print(f"{handler:<11}{body:>6}{streams:>9}{figures}{against}")


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def words(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 KiB, 1 and 64 streams, fewer calls, one round")
    parser.add_argument("--doors", type=words, default=["native", "grpcio"])
    parser.add_argument("--handlers", type=words, default=["batch"], help="batch, many (answer_many), coroutine")
    parser.add_argument("--bodies", type=numbers, default=[128, 1024, 4096])
    parser.add_argument("--streams", type=numbers, default=[1, 8, 64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    settings = parser.parse_args()
    if settings.quick:
        settings.bodies, settings.streams, settings.rounds = [1024], [1, 64], 1
    cells: dict[tuple[str, str, int, int], Cell] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {kind: stack.enter_context(DoorProcess(kind)) for kind in settings.doors}
        for body in settings.bodies:
            request = folder / str(body)
            request.write_bytes(b"\0" + body.to_bytes(4, "big") + os.urandom(body))
            for handler in settings.handlers:
                for streams in settings.streams:
                    for _ in range(settings.rounds):
                        for kind, server in servers.items():
                            calls = calls_of(kind, streams, quick=settings.quick)
                            cell = cells.setdefault((kind, handler, body, streams), Cell())
                            cell.take(*measure(server, handler, request, streams, calls))
    print(f"load of the machine: {' '.join(f'{load:.1f}' for load in os.getloadavg())}, {os.cpu_count()} cores")
    table(cells, settings.doors)


if __name__ == "__main__":
    main()
