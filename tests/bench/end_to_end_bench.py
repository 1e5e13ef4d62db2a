"""End to end through the client port: what one message costs the broker process, and how many pass a second.

Starts `razzo up` on free ports with a data directory of its own, then drives the broker's client port:

* send: `h2load` (Debian `nghttp2-client`) repeats one SendMessage request with N streams on one connection. The topic's
  offsets are compared with the calls afterwards, so a refused call cannot pass for a fast one.
* receive and acknowledge: a raw gRPC client drains part of what was sent, 32 messages a call, 32 handles an ack.

Server CPU is the sum of all threads' run time (`/proc/PID/task/*/schedstat`, nanoseconds) of the broker process, so a
slow client does not blur it. Client and server share the machine: calls a second is a floor.

    .venv/bin/python tests/bench/end_to_end_bench.py [--bodies 128,1024,4096] [--streams 1,8,64,256] [--seconds 3]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from apache.rocketmq.v2 import definition_pb2 as pb
from apache.rocketmq.v2 import service_pb2 as svc
from razzo.protocol import methods

RAZZO = str(Path(sys.executable).with_name("razzo"))
CLIENT_HEADERS = (
    ("x-mq-client-id", "bench@1@0@1"),
    ("x-mq-language", "JAVA"),
    ("x-mq-protocol", "v2"),
    ("x-mq-client-version", "5.2.1"),
    ("x-mq-date-time", "20261121T000000Z"),
    ("x-mq-request-id", "1f0c7d2e-bench"),
    ("user-agent", "grpc-java-netty/1.71.0"),
)
RECEIVE_CALLS_MAX = 600


def cpu_ns(pid: int) -> int:
    """Nanoseconds of CPU that all threads of a process have used."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def broker_pid(parent: int) -> int:
    """The pid of the child whose command line names the broker."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for pid in map(int, children):
        if b"razzo-broker" in (line := Path(f"/proc/{pid}/cmdline").read_bytes()) or b"razzo.broker" in line:
            return pid
    raise RuntimeError(f"no broker among the children of {parent}: {children}")


@contextlib.contextmanager
def cluster(flush: str, data: Path, door: str) -> Iterator[tuple[str, int]]:
    """A running `razzo up`: yields its endpoint and the broker's pid."""
    command = [RAZZO, "up", "--json", "--data", str(data), "--port", "0", "--flush", flush]
    command += ["--set", f"broker.door={door}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield ready["endpoint"], broker_pid(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=60)


def admin(endpoint: str, *words: str) -> str:
    done = subprocess.run([RAZZO, "admin", *words, "--endpoint", endpoint, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"razzo admin {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def broker_address(endpoint: str, topic: str) -> str:
    host, port = endpoint.rsplit(":", 1)
    request = svc.QueryRouteRequest(
        topic=pb.Resource(name=topic),
        endpoints=pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=int(port))]),
    )
    with grpc.insecure_channel(endpoint) as channel:
        call = channel.unary_unary(methods.QUERY_ROUTE, None, svc.QueryRouteResponse.FromString)
        answer = call(request.SerializeToString(), metadata=CLIENT_HEADERS[:-1], timeout=3)
    address = answer.message_queues[0].broker.endpoints.addresses[0]
    return f"{address.host}:{address.port}"


def stored(endpoint: str, topic: str) -> int:
    """Messages of a topic by its queues' offsets."""
    rows = json.loads(admin(endpoint, "topics"))
    rows = rows["topics"] if isinstance(rows, dict) else rows
    return sum(
        int(queue["max_offset"]) - int(queue["min_offset"])
        for row in rows
        if row.get("name", row.get("topic", {})) == topic
        for queue in row["queues"]
    )


def send_request(topic: str, body_bytes: int) -> bytes:
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
            queue_id=0,
        ),
        body=bytes(i * 7 & 0xFF for i in range(body_bytes)),
    )
    message.system_properties.born_timestamp.FromMilliseconds(1_800_000_000_000)
    payload = svc.SendMessageRequest(messages=[message]).SerializeToString()
    return struct.pack(">BI", 0, len(payload)) + payload


def h2load(address: str, path: str, request: bytes, streams: int, seconds: float, connections: int = 1) -> int:
    """Completed calls of one run."""
    with tempfile.NamedTemporaryFile() as body:
        body.write(request)
        body.flush()
        command = ["h2load", f"-D{max(1, round(seconds))}", f"-c{connections}", f"-m{streams}", "-w20", "-W20", "-d", body.name]
        for key, value in (*CLIENT_HEADERS, ("content-type", "application/grpc"), ("te", "trailers")):
            command += ["-H", f"{key}: {value}"]
        done = subprocess.run([*command, f"http://{address}{path}"], capture_output=True, text=True, check=True)
    found = re.search(r"requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded", done.stdout)
    if found is None:
        raise RuntimeError(f"h2load printed no result:\n{done.stdout}{done.stderr}")
    return int(found.group(1))


def bench_send(endpoint: str, pid: int, bodies: list[int], streams: list[int], seconds: float) -> None:
    for body in bodies:
        topic = f"bench-{body}"
        admin(endpoint, "create-topic", topic, "--type", "normal", "--queues", "8")
        address = broker_address(endpoint, topic)
        request = send_request(topic, body)
        h2load(address, methods.SEND_MESSAGE, request, 64, 1)  # warm
        for width in streams:
            before, cpu, start = stored(endpoint, topic), cpu_ns(pid), time.perf_counter()
            calls = h2load(address, methods.SEND_MESSAGE, request, width, seconds)
            cpu, wall = cpu_ns(pid) - cpu, time.perf_counter() - start
            # h2load drops the calls in flight at its end: they may be stored without being counted.
            kept = stored(endpoint, topic) - before
            verdict = "" if calls <= kept <= calls + width else f"  NOT ALL STORED: {kept}"
            print(
                f"  send {body:>5} B  {width:>4} in flight  {calls / wall:>9,.0f} msg/s"
                f"  {cpu / max(calls, 1) / 1e3:>7.1f} us server CPU/msg{verdict}",
                flush=True,
            )


def bench_receive(endpoint: str, pid: int, topic: str) -> None:
    """Drains the topic with one connection: receive 32, acknowledge 32."""
    group = "bench-group"
    admin(endpoint, "create-group", group)
    address = broker_address(endpoint, topic)
    receive = svc.ReceiveMessageRequest(
        group=pb.Resource(name=group),
        message_queue=pb.MessageQueue(topic=pb.Resource(name=topic), broker=pb.Broker(name="any")),
        filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
        batch_size=32,
    )
    receive.invisible_duration.FromSeconds(60)
    receive.long_polling_timeout.FromSeconds(5)
    metadata = CLIENT_HEADERS[:-1]
    with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        pop = channel.unary_stream(methods.RECEIVE_MESSAGE, None, svc.ReceiveMessageResponse.FromString)
        ack = channel.unary_unary(methods.ACK_MESSAGE, None, svc.AckMessageResponse.FromString)
        admin(endpoint, "reset-offset", group, topic, "0")
        taken, receive_cpu, ack_cpu, start = 0, 0, 0, time.perf_counter()
        for _ in range(RECEIVE_CALLS_MAX):
            mark = cpu_ns(pid)
            messages = [
                element.message
                for element in pop(receive.SerializeToString(), metadata=metadata, timeout=20)
                if element.HasField("message")
            ]
            receive_cpu += cpu_ns(pid) - mark
            if not messages:
                break
            entries = [
                svc.AckMessageEntry(
                    message_id=message.system_properties.message_id,
                    receipt_handle=message.system_properties.receipt_handle,
                )
                for message in messages
            ]
            request = svc.AckMessageRequest(
                group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries
            )
            mark = cpu_ns(pid)
            answer = ack(request.SerializeToString(), metadata=metadata, timeout=3)
            ack_cpu += cpu_ns(pid) - mark
            if answer.status.code != pb.OK:
                raise RuntimeError(f"ack refused: {answer.status}")
            taken += len(messages)
        wall = time.perf_counter() - start
    print(
        f"  receive+ack {topic}: {taken:,} messages, {taken / wall:,.0f} msg/s with one grpcio client,"
        f"  {receive_cpu / max(taken, 1) / 1e3:.1f} us receive and {ack_cpu / max(taken, 1) / 1e3:.1f} us ack"
        " of server CPU a message (batches of 32)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", default="128,1024,4096")
    parser.add_argument("--streams", default="1,8,64,256")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--flush", default="async,sync")
    parser.add_argument("--door", choices=("native", "grpcio"), default="native")
    options = parser.parse_args()
    if shutil.which("h2load") is None:
        raise SystemExit("h2load is missing: apt-get install nghttp2-client")
    bodies, streams = ([int(word) for word in text.split(",")] for text in (options.bodies, options.streams))
    for flush in options.flush.split(","):
        print(f"end to end, {options.door} door, {flush} flush", flush=True)
        with tempfile.TemporaryDirectory(prefix="razzo-bench-") as data, cluster(flush, Path(data), options.door) as (endpoint, pid):
            bench_send(endpoint, pid, bodies, streams, options.seconds)
            bench_receive(endpoint, pid, f"bench-{bodies[len(bodies) // 2]}")


if __name__ == "__main__":
    main()
