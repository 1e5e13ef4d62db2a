"""The official Python client as a JSON-lines program; ../README.md says what it takes and writes.

Runs in a process of its own with the environment's rocketmq-python-client; nothing of Razzo is imported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import PushConsumer, SimpleConsumer
from rocketmq.v5.consumer.push import ConsumeResult, MessageListener
from rocketmq.v5.model import FilterExpression, Message
from rocketmq.v5.producer import Producer

WARM_UP_PROPERTY = "warm-up"
INVISIBLE_S = 60
AWAIT_S = 5
CLOSE_LIMIT_S = 3

_writing = threading.Lock()
_stopping = threading.Event()


def write(**line: Any) -> None:
    with _writing:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def report(message: Message) -> None:
    if WARM_UP_PROPERTY in message.properties:
        write(event="warm")
        return
    write(
        event="received",
        message_id=message.message_id,
        topic=message.topic,
        size=len(message.body),
        sha256=hashlib.sha256(message.body).hexdigest(),
        tag=message.tag,
        keys=sorted(message.keys),
        properties=dict(message.properties),
        born_ms=message.born_timestamp,
        born_host=message.born_host,
        attempt=message.delivery_attempt,
    )


class Listener(MessageListener):
    def consume(self, message: Message) -> ConsumeResult:
        report(message)
        return ConsumeResult.SUCCESS


def send(configuration: ClientConfiguration, options: argparse.Namespace) -> None:
    blob = options.blob.read_bytes()
    producer = Producer(configuration, (options.topic,), tls_enable=options.tls == "true")
    producer.startup()
    write(event="started")
    with options.manifest.open() as manifest:
        for line in manifest:
            entry = json.loads(line)
            message = Message()
            message.topic = options.topic
            message.body = blob[entry["offset"] : entry["offset"] + entry["size"]]
            if entry["tag"] is not None:
                message.tag = entry["tag"]
            for key in entry["keys"]:
                message.keys = key
            for name, value in entry["properties"].items():
                message.add_property(name, value)
            before_ms = time.time_ns() // 1_000_000
            receipt = producer.send(message)
            after_ms = time.time_ns() // 1_000_000
            write(
                event="sent",
                id=entry["id"],
                message_id=receipt.message_id,
                offset=receipt.offset,
                before_ms=before_ms,
                after_ms=after_ms,
            )
    write(event="done")
    until_input_ends(producer)


def simple(configuration: ClientConfiguration, options: argparse.Namespace) -> None:
    consumer = SimpleConsumer(
        configuration,
        options.group,
        {options.topic: FilterExpression()},
        await_duration=AWAIT_S,
        tls_enable=options.tls == "true",
    )
    consumer.startup()
    write(event="started")
    threading.Thread(target=until_input_ends, args=(consumer,), daemon=True).start()
    while True:
        for message in consumer.receive(32, INVISIBLE_S) or ():
            report(message)
            consumer.ack(message)


def push(configuration: ClientConfiguration, options: argparse.Namespace) -> None:
    consumer = PushConsumer(
        configuration,
        options.group,
        Listener(),
        {options.topic: FilterExpression()},
        tls_enable=options.tls == "true",
    )
    consumer.startup()
    write(event="started")
    until_input_ends(consumer)


def until_input_ends(client: Producer | SimpleConsumer | PushConsumer) -> None:
    """Waits for the end of the standard input, then stops the client and the process."""
    sys.stdin.read()
    _stopping.set()
    stopping = threading.Thread(target=client.shutdown, daemon=True)
    stopping.start()
    stopping.join(CLOSE_LIMIT_S)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("endpoint", "tls", "mode", "topic", "group"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--blob", type=Path)
    options = parser.parse_args()
    configuration = ClientConfiguration(options.endpoint, Credentials())
    try:
        {"send": send, "simple": simple, "push": push}[options.mode](configuration, options)
    except Exception as error:
        if _stopping.is_set():  # a receive that the shutdown cut off; until_input_ends has the last word
            threading.Event().wait()
        write(event="error", what=repr(error))
        os._exit(1)


if __name__ == "__main__":
    main()
