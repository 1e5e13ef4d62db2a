"""Razzo on its native door, Razzo on grpcio, and Apache RocketMQ 5.4.0, side by side in one run, everything included.

* send: `h2load` (Debian `nghttp2-client`) repeats one SendMessage request, N calls under way on one connection. The
  topic's offsets are compared with the completed calls, so a refused call cannot pass for a fast one.
* receive: a small Go client leases messages, 32 a call, with 1 and 16 calls under way, then acknowledges all of them,
  one and 32 a call.
* java: the official Java client: a producer with 64 and 256 sends under way, and a simple consumer that drains a
  backlog.

Server CPU is the run time of all threads (`/proc/PID/task/*/schedstat`, nanoseconds) of the processes that handle
messages: Razzo's broker, or Apache's JVM with broker and proxy. Load and server share the machine, so messages a
second is a floor. The servers take turns within every row. Apache runs with a heap of 2 GiB and its own defaults, and
is warmed with real load for more than 40 s before it is measured (`--warm-seconds`), and again for 10 s at each
further width.

    .venv/bin/python tests/bench/compare_bench.py [--quick] [--parts send,receive,java] [--flush async,sync]
        [--servers native,grpcio,apache] [--bodies 128,1024,4096] [--widths 256,64,8,1] [--seconds 3] [--rounds 1]
        [--warm-seconds 41] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import clients
import servers
from servers import Server

from apache.rocketmq.v2 import definition_pb2 as pb
from apache.rocketmq.v2 import service_pb2 as svc
from razzo.protocol import methods

FILL_WIDTH = 64
RECEIVE_WORKERS = (1, 16)
JAVA_WIDTHS = (64, 256)
JAVA_RECEIVERS = 4
GO_MESSAGES_PER_STEP = {True: 32_000, False: 96_000}
"""By --quick. Razzo hands out 20,000 messages of a queue at most (`leases_per_queue_max`), and a topic has 8."""
LONE_WORKER_PART = 8
"""With one call under way this part of the messages is enough for the clocks, and takes as long."""
DRAIN_MESSAGES = {True: 50_000, False: 200_000}
REWARM_PART = 4
"""Apache is warmed for the whole time at the first width, and for this part of it again at each further one."""


@dataclass
class Run:
    """One run: what was asked for, and the rows that were measured."""

    options: argparse.Namespace
    home: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    made: int = 0

    def name(self, what: str) -> str:
        """A name that no other part of the run uses."""
        self.made += 1
        return f"{what}-{self.made}"

    def add(self, **row: Any) -> None:
        """Keeps a row and prints it."""
        self.rows.append(row)
        words = [f"{row['flush']:<6}{row['part']:<9}{row['server']:<14}{row['what']:<34}"]
        words.append(f"{row['per_s']:>10,.0f} msg/s{row['cpu_us']:>9.2f} us CPU/msg")
        if "p50_ms" in row:
            words.append(f"   p50 {row['p50_ms']:.2f} ms  p99 {row['p99_ms']:.2f} ms")
        print("".join(words), flush=True)


def send_request(topic: str, body_bytes: int, queue_id: int = 0) -> bytes:
    """One framed SendMessage request as an official Java client builds it: tag, a key, one property."""
    message = pb.Message(
        topic=pb.Resource(name=topic),
        user_properties={"tenant": "bench"},
        system_properties=pb.SystemProperties(
            tag="bench",
            keys=["order-1001"],
            message_id="0102FC000000014FD10B11B56100000000",
            body_encoding=pb.IDENTITY,
            message_type=pb.NORMAL,
            born_host="10.0.0.1",
            queue_id=queue_id,
        ),
        body=bytes(i * 7 & 0xFF for i in range(body_bytes)),
    )
    message.system_properties.born_timestamp.FromMilliseconds(int(time.time() * 1_000))
    payload = svc.SendMessageRequest(messages=[message]).SerializeToString()
    return struct.pack(">BI", 0, len(payload)) + payload


def needs_no_warming(server: Server) -> bool:
    """Compiled ahead of time, or interpreted without a JIT: a short warm-up does."""
    return server.name != servers.Apache.name


# --- send


def bench_send(run: Run, flush: str, up: list[Server]) -> None:
    options = run.options
    for width in options.widths:
        for server in up:
            warm_send(run, server, width, again=width != options.widths[0])
        for body in options.bodies:
            for _ in range(options.rounds):
                for server in up:
                    send_cell(run, flush, server, body, width)


def warm_send(run: Run, server: Server, width: int, *, again: bool) -> None:
    topic = run.name("warm")
    address = server.create_topic(topic)
    full_s = run.options.warm_seconds
    seconds = 1 if needs_no_warming(server) else max(1, full_s // REWARM_PART) if again else full_s
    clients.h2load(address, methods.SEND_MESSAGE, send_request(topic, 1024), width, seconds=seconds)


def send_cell(run: Run, flush: str, server: Server, body: int, width: int) -> None:
    topic = run.name(f"send-{body}")
    address = server.create_topic(topic)
    request = send_request(topic, body)
    clients.h2load(address, methods.SEND_MESSAGE, request, width, calls=4 * width)
    before, cpu = servers.wait_stored(server, topic, 4 * width), server.cpu_ns()
    load = clients.h2load(address, methods.SEND_MESSAGE, request, width, seconds=run.options.seconds)
    cpu = server.cpu_ns() - cpu
    kept = servers.wait_stored(server, topic, before + load.calls) - before
    # h2load drops the calls under way at its end: they may be stored without being counted.
    if not load.calls <= kept <= load.calls + width:
        raise RuntimeError(f"{server.name} answered {load.calls} sends and stored {kept} messages")
    run.add(flush=flush, part="send", server=server.name, what=f"{body} B, {width} under way", body=body, width=width,
            per_s=load.calls / load.seconds, cpu_us=cpu / load.calls / 1e3, p50_ms=load.p50_ms, p99_ms=load.p99_ms,
            messages=load.calls)  # fmt: skip


# --- receive and acknowledge


def fill(server: Server, topic: str, address: str, count: int) -> None:
    """`count` messages of 1 KiB, evenly over the queues."""
    each = count // servers.QUEUES
    for queue_id in range(servers.QUEUES):
        request = send_request(topic, 1024, queue_id)
        clients.h2load(address, methods.SEND_MESSAGE, request, FILL_WIDTH, calls=each)
    kept = servers.wait_stored(server, topic, each * servers.QUEUES)
    if kept != each * servers.QUEUES:
        raise RuntimeError(f"{server.name} stored {kept} of {each * servers.QUEUES} messages")


def bench_receive(run: Run, flush: str, up: list[Server]) -> None:
    count = GO_MESSAGES_PER_STEP[run.options.quick]
    for server in up:
        if not needs_no_warming(server):
            deadline = time.monotonic() + run.options.warm_seconds
            while time.monotonic() < deadline:
                go_steps(run, server, RECEIVE_WORKERS[-1], 1, count)
    for workers in RECEIVE_WORKERS:
        for entries in (1, 32):
            for server in up:
                part = count if workers > 1 else count // LONE_WORKER_PART
                received, acknowledged = go_steps(run, server, workers, entries, part)
                for verb, (answer, cpu) in (("receive 32", received), (f"ack {entries}", acknowledged)):
                    if verb.startswith("receive") and entries == 32:
                        continue  # measured with the other acks already
                    run.add(flush=flush, part="receive", server=server.name, what=f"{verb} a call, {workers} under way",
                            verb=verb, width=workers, per_s=answer["messages"] / answer["seconds"],
                            cpu_us=cpu / answer["messages"] / 1e3, cpu_us_call=cpu / answer["calls"] / 1e3,
                            messages=answer["messages"])  # fmt: skip


def go_steps(run: Run, server: Server, workers: int, entries: int, count: int) -> list[tuple[dict[str, Any], int]]:
    """Leases `count` messages of a fresh topic and acknowledges them; for each step the answer and the server's CPU."""
    topic, group = run.name("receive"), run.name("group")
    address = server.create_topic(topic)
    steps = []
    with clients.go(run.home / "go", address=address, topic=topic, group=group, broker=server.broker_name) as client:
        # Workers finish the call they are in: some more than `count` may be taken.
        fill(server, topic, address, count + 32 * servers.QUEUES * max(RECEIVE_WORKERS))
        for line in (f"receive {workers} {count}", f"ack {workers} {entries}"):
            cpu = server.cpu_ns()
            answer = client.step(line)
            steps.append((answer, server.cpu_ns() - cpu))
            if answer["messages"] < count:
                raise RuntimeError(f"{server.name}: {line}: {answer}")
    return steps


# --- the official Java client


def bench_java(run: Run, flush: str, up: list[Server]) -> None:
    up = [server for server in up if server.name != "razzo-grpcio"]
    seconds = max(run.options.seconds, 5)
    for width in JAVA_WIDTHS:
        for server in up:
            java_produce(run, flush, server, width, seconds)
    for server in up:
        java_drain(run, flush, server)


def java_produce(run: Run, flush: str, server: Server, width: int, seconds: float) -> None:
    topic = run.name("java")
    server.create_topic(topic)
    options = {"endpoint": server.endpoint, "topic": topic, "body": 1024, "in_flight": width}
    with clients.java(run.home / "java", mode="produce", **options) as client:
        # The client is Java too, so it is warmed as long against either server.
        sent = client.step(str(max(1, run.options.warm_seconds)))["messages"]
        cpu = server.cpu_ns()
        answer = client.step(str(seconds))
        cpu = server.cpu_ns() - cpu
    sent += answer["messages"]
    if (kept := servers.wait_stored(server, topic, sent)) != sent:
        raise RuntimeError(f"{server.name} stored {kept} of {sent} messages")
    run.add(flush=flush, part="java", server=server.name, what=f"produce 1024 B, {width} under way", verb="produce",
            width=width, per_s=answer["messages"] / answer["seconds"], cpu_us=cpu / answer["messages"] / 1e3,
            messages=answer["messages"])  # fmt: skip


def java_drain(run: Run, flush: str, server: Server) -> None:
    count = DRAIN_MESSAGES[run.options.quick]
    warm_until = time.monotonic() + (0 if needs_no_warming(server) else run.options.warm_seconds)
    while True:
        last = time.monotonic() >= warm_until
        topic, group = run.name("drain"), run.name("group")
        address = server.create_topic(topic)
        options = {"endpoint": server.endpoint, "topic": topic, "group": group, "receivers": JAVA_RECEIVERS}
        with clients.java(run.home / "java", mode="drain", **options) as client:
            fill(server, topic, address, count)
            cpu = server.cpu_ns()
            answer = client.step(str(count))
            cpu = server.cpu_ns() - cpu
        if last:
            break
    run.add(flush=flush, part="java", server=server.name, what=f"drain {count:,} x 1024 B", verb="drain",
            width=JAVA_RECEIVERS, per_s=count / answer["seconds"], cpu_us=cpu / count / 1e3,
            messages=count)  # fmt: skip


# --- tables


def tables(run: Run) -> Iterator[str]:
    """Markdown: one row for each case, one pair of columns for each server; the best of the rounds."""
    names = list(dict.fromkeys(row["server"] for row in run.rows))
    for flush in run.options.flush:
        for part in run.options.parts:
            rows = [row for row in run.rows if (row["flush"], row["part"]) == (flush, part)]
            latency = " p50 / p99 ms |" if part == "send" else ""
            heads = "".join(f" {name} msg/s | CPU us |{latency}" for name in names)
            yield f"\n{part}, {flush} flush\n\n| |{heads} msg/s against Apache | CPU against Apache |"
            yield "|---|" + "---|" * (len(names) * (3 if part == "send" else 2) + 2)
            for what in dict.fromkeys(row["what"] for row in rows):
                cells = [best([row for row in rows if (row["what"], row["server"]) == (what, name)]) for name in names]
                ratio = ratios(dict(zip(names, cells, strict=True)))
                yield f"| {what} |" + "".join(shown(cell, part == "send") for cell in cells) + ratio


def best(rounds: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Most messages a second, least CPU, and the latencies of the round with the most messages."""
    if not rounds:
        return None
    return {**max(rounds, key=lambda row: float(row["per_s"])), "cpu_us": min(row["cpu_us"] for row in rounds)}


def shown(cell: dict[str, Any] | None, latency: bool) -> str:
    if cell is None:
        return " - | - |" + (" - |" if latency else "")
    text = f" {cell['per_s']:,.0f} | {cell['cpu_us']:.1f} |"
    return text + (f" {cell['p50_ms']:.2f} / {cell['p99_ms']:.2f} |" if latency else "")


def ratios(cells: dict[str, dict[str, Any] | None]) -> str:
    ours, theirs = cells.get("razzo-native"), cells.get(servers.Apache.name)
    if ours is None or theirs is None:
        return " - | - |"
    return f" {ours['per_s'] / theirs['per_s']:.1f}x | 1/{theirs['cpu_us'] / ours['cpu_us']:.1f} |"


PARTS: dict[str, Callable[[Run, str, list[Server]], None]] = {
    "send": bench_send,
    "receive": bench_receive,
    "java": bench_java,
}


def parse() -> argparse.Namespace:
    def words(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 KiB, 256 and 64, short, less warm: not for the record")
    parser.add_argument("--parts", type=words, default=list(PARTS))
    parser.add_argument("--flush", type=words, default=["async", "sync"])
    parser.add_argument("--servers", type=words, default=["native", "grpcio", "apache"])
    parser.add_argument("--bodies", type=numbers, default=None)
    parser.add_argument("--widths", type=numbers, default=None)
    parser.add_argument("--seconds", type=int, default=None, help="each measurement of sends")
    parser.add_argument("--rounds", type=int, default=1, help="of the send part; the best counts")
    parser.add_argument("--warm-seconds", type=int, default=None, help="of Apache")
    parser.add_argument("--json", type=Path, default=None, help="every row, for later")
    options = parser.parse_args()
    quick = options.quick
    options.bodies = options.bodies or ([1024] if quick else [128, 1024, 4096])
    options.widths = options.widths or ([256, 64] if quick else [256, 64, 8, 1])
    options.seconds = options.seconds or (2 if quick else 3)
    options.warm_seconds = (10 if quick else 41) if options.warm_seconds is None else options.warm_seconds
    return options


def start(kind: str, flush: str, folder: Path) -> contextlib.AbstractContextManager[Server]:
    return servers.apache(flush, folder) if kind == "apache" else servers.razzo(kind, flush, folder)


def main() -> None:
    options = parse()
    if shutil.which("h2load") is None:
        raise SystemExit("h2load is missing: apt-get install nghttp2-client")
    with tempfile.TemporaryDirectory(prefix="razzo-bench-") as home:
        run = Run(options, Path(home))
        for flush in options.flush:
            for part in options.parts:
                folder = Path(home, f"{flush}-{part}")
                with contextlib.ExitStack() as stack:
                    up = [stack.enter_context(start(kind, flush, folder)) for kind in options.servers]
                    PARTS[part](run, flush, up)
                shutil.rmtree(folder)
        for line in tables(run):
            print(line)
    if options.json is not None:
        options.json.write_text(json.dumps(run.rows, indent=1))


if __name__ == "__main__":
    main()
