"""Sends under load and remembers what was promised: the other half of a test that kills the broker."""

from __future__ import annotations

import struct
import threading
import uuid
import zlib
from dataclasses import dataclass, field
from random import Random

import grpc
from official.raw_client import RawClient, message

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s

SENDERS = 8
SEND_TIMEOUT_S = 5.0
BODY_BYTES = (0, 32 << 10)

# In front of every body: what follows it, and its CRC-32.
HEADER = struct.Struct(">QI")


def make_body(rng: Random) -> bytes:
    """A body that shows by itself whether it is whole."""
    content = rng.randbytes(rng.randint(*BODY_BYTES))
    return HEADER.pack(len(content), zlib.crc32(content)) + content


def is_whole(body: bytes) -> bool:
    """Whether a body is one of `make_body`, to the last byte."""
    if len(body) < HEADER.size:
        return False
    length, crc = HEADER.unpack_from(body)
    content = body[HEADER.size :]
    return len(content) == length and zlib.crc32(content) == crc


@dataclass
class Promises:
    """What senders tried and what the broker acknowledged, over all rounds."""

    tried: dict[str, int] = field(default_factory=dict)
    """Message id -> CRC-32 of the whole body."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Message id -> queue offset the answer named."""
    refused: list[str] = field(default_factory=list)
    """Answers with another code than OK."""

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def attempt(self, message_id: str, body: bytes) -> None:
        with self._lock:
            self.tried[message_id] = zlib.crc32(body)

    def answered(self, message_id: str, answer: s.SendMessageResponse) -> None:
        with self._lock:
            if answer.status.code == d.OK:
                self.acknowledged[message_id] = answer.entries[0].offset
            else:
                self.refused.append(str(answer.status))


class Load:
    """SENDERS threads that send to one broker, one message after the other, until they are stopped or cut off."""

    def __init__(self, endpoint: str, topic: str, promises: Promises, seed: int) -> None:
        self._topic = topic
        self._promises = promises
        self._stop = threading.Event()
        self._first_answer = threading.Event()
        self._raw = RawClient(endpoint)
        self._address = self._raw.broker_address(topic)
        self._stub = self._raw.stub(self._address)
        self._threads = [
            threading.Thread(target=self._send, args=(Random(f"{seed}-{number}"),), name=f"sender-{number}")
            for number in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for_an_answer(self, timeout_s: float = 20.0) -> None:
        """Returns when the load is on."""
        assert self._first_answer.wait(timeout_s), f"no answer to any send within {timeout_s:g} s"

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SEND_TIMEOUT_S + 5)
            assert not thread.is_alive(), f"{thread.name} hangs"
        self._raw.__exit__()

    def _send(self, rng: Random) -> None:
        while not self._stop.is_set():
            body = make_body(rng)
            message_id = uuid.UUID(int=rng.getrandbits(128)).hex.upper()
            self._promises.attempt(message_id, body)
            request = s.SendMessageRequest(messages=[message(self._topic, body, {}, message_id)])
            try:
                answer = self._stub.SendMessage(request, metadata=self._raw.metadata, timeout=SEND_TIMEOUT_S)
            except grpc.RpcError:
                return  # the broker was killed: this message was promised nothing
            self._promises.answered(message_id, answer)
            self._first_answer.set()
