"""`make up`: runs `razzo up`, sends and receives a first message with the official Python SDK, and says how to go on.

Ends with the exit code of `razzo up`, or 1 when the first message did not come through.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from razzo.cli.up import in_words

BESIDE = Path(sys.executable).parent
TOPIC, GROUP = "razzo-first-message", "razzo-first-message-readers"
RECEIVE_S_MAX = 60.0
LEASE_S = 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--once", action="store_true", help="stop after the self-check")
    asked = parser.parse_args()
    command = [str(BESIDE / "razzo"), "up", "--json", "--data", str(asked.data), "--port", str(asked.port)]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # Ctrl-C in a terminal reaches `razzo up` too; what follows from it is its business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: up.terminate())
    try:
        ready = read_event(up)
        if ready is None:
            return up.wait() or 1
        if not check(ready["endpoint"]):
            return 1
        say(ready)
        if asked.once:
            up.terminate()
        while event := read_event(up):
            say(event)
        return up.wait()
    finally:
        up.terminate()
        up.wait()


def read_event(up: subprocess.Popen[str]) -> dict[str, Any] | None:
    """The next thing that `razzo up` says; None when it has ended."""
    assert up.stdout is not None
    line = up.stdout.readline()
    return dict(json.loads(line)) if line else None


def check(endpoint: str) -> bool:
    """Sends a message and receives it again. In a process of its own: the SDK keeps threads and talks a lot."""
    for words in (
        ["create-topic", TOPIC],
        ["create-group", GROUP],
        ["reset-offset", GROUP, TOPIC, str(time.time_ns() // 1_000_000)],
    ):
        admin = [str(BESIDE / "razzo"), "admin", "--endpoint", endpoint, *words]
        done = subprocess.run(
            [*admin, *(["--update"] if words[0].startswith("create") else [])], capture_output=True, text=True
        )
        if done.returncode:
            print(f"self-check failed: {done.stderr.strip()}", file=sys.stderr)
            return False
    started = time.monotonic()
    body = f"hello {time.time_ns()}"
    done = subprocess.run([sys.executable, __file__, "exchange", endpoint, body], capture_output=True, text=True)
    if done.returncode:
        print(f"self-check failed: the official Python SDK said:\n{done.stdout}{done.stderr}", file=sys.stderr)
        return False
    took_s = time.monotonic() - started
    print(f"A first message went through the official Python SDK and back ({took_s:.1f} s with its start and stop).\n")
    return True


def exchange(endpoint: str, body: str) -> int:
    """Sends `body` and receives until it is there, with the official SDK."""
    from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

    configuration = ClientConfiguration(endpoint, Credentials())
    producer = Producer(configuration, [TOPIC])
    consumer = SimpleConsumer(configuration, GROUP, {TOPIC: FilterExpression()})
    producer.startup()
    consumer.startup()
    message = Message()
    message.topic, message.body = TOPIC, body.encode()
    producer.send(message)
    deadline = time.monotonic() + RECEIVE_S_MAX
    arrived = False
    while not arrived and time.monotonic() < deadline:
        for received in consumer.receive(32, LEASE_S) or []:
            consumer.ack(received)
            arrived = arrived or received.body == body.encode()
    consumer.shutdown()
    producer.shutdown()
    return 0 if arrived else 1


def say(event: dict[str, Any]) -> None:
    print(in_words(event), flush=True)


if __name__ == "__main__":
    sys.exit(exchange(sys.argv[2], sys.argv[3]) if sys.argv[1:2] == ["exchange"] else main())
