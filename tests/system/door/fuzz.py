"""A seeded fuzzer for the native door: connections whose bytes are mutations of good ones, fed without sockets.

Each input is one connection: a greeting and some calls, frames of all kinds, then mutated (bytes flipped, cut, doubled,
frames shuffled, lengths and flags changed), cut into reads at random places, and ended at a random moment; held batch
calls are answered before or after that end. After every `CHECK_EVERY` inputs nothing may be left of them and a good
call must be served. The same seed gives the same inputs.

    PYTHONPATH=tests/system python -m door.fuzz [--inputs 10000] [--seed 1] [--only N]

Prints one JSON line: what was fed and what came of it. A crash of the extension ends the process by a signal; the last
input's number is in the file named by ``--trace``, for ``--only``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import hpack
import uvloop
from door import wire as h2
from door.probe import Probe, path

from razzo.door._door import Door, streams_alive
from razzo.door.observers import Observers
from razzo.door.server import DoorLimits

CHECK_EVERY = 500
READS_MAX = 12
LIMITS = DoorLimits(
    request_bytes_max=50_000,
    response_bytes_max=50_000,
    header_bytes_max=4_096,
    streams_per_connection_max=16,
    buffered_request_bytes_max=60_000,
    buffered_total_bytes_max=100_000,
    unsent_stream_bytes_max=4_096,
    unsent_connection_bytes_max=16_384,
    batch_calls_max=3,
)
"""Small, so that a short input reaches them."""

METHODS = {
    "Echo": b"hello",
    "EchoBatch": b"hello",
    "ManyBatch": b"many",
    "HoldBatch": b"held",
    "Fail": b"5 gone",
    "FailBatch": b"7 no",
    "Mirror": b"",
    "DescribeBatch": b"",
    "Count": b"3 100",
    "Raw": b"5 2000",
    "FailStream": b"8 x",
    "Flood": b"900",
    "Chat": b"chat",
    "Total": b"total",
    "Deaf": b"deaf",
    "Wait": b"",
    "Nothing": b"x",
}
EXTRA_HEADERS = [
    ("grpc-timeout", "5m"),
    ("grpc-timeout", "1S"),
    ("grpc-timeout", "99999999H"),
    ("grpc-encoding", "gzip"),
    ("grpc-encoding", "identity"),
    ("grpc-encoding", "rot13"),
    ("x-mq-client-id", "host@1@0@x"),
    ("data-bin", "AAEC"),
    ("data-bin", "!!!"),
    ("i-text", "mirrored"),
    ("t-data-bin", "_w=="),
    ("x-long", "l" * 5_000),
    ("te", "nothing"),
]


class Sink(asyncio.Transport):
    """A transport that takes everything, and now and then tells the protocol to pause."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000)})
        self.written = bytearray()
        self.ended = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def headers_of(dice: random.Random, method: str) -> list[tuple[str, str]]:
    headers = h2.grpc_headers(path(method), dice.sample(EXTRA_HEADERS, dice.choice([0, 0, 0, 1, 2])))
    if dice.random() < 0.05:
        del headers[dice.randrange(len(headers))]
    if dice.random() < 0.05:
        dice.shuffle(headers)
    return headers


def call_frames(dice: random.Random, encoder: hpack.Encoder, stream: int) -> list[bytes]:
    """One call, mostly right, as separate frames."""
    method, request = dice.choice(list(METHODS.items()))
    block = encoder.encode(headers_of(dice, method))
    cut = dice.randrange(len(block)) if dice.random() < 0.1 else len(block)
    frames = [h2.frame(h2.HEADERS, h2.END_HEADERS if cut == len(block) else 0, stream, block[:cut])]
    if cut < len(block):
        frames.append(h2.frame(h2.CONTINUATION, h2.END_HEADERS, stream, block[cut:]))
    size = dice.choice([None, None, None, 0, 10, 3_000, 45_000, 60_000])
    message = request if size is None else bytes(size)
    payload = b"".join(
        h2.grpc_message(message, flag=dice.random() < 0.03) for _ in range(dice.choice([1, 1, 1, 1, 0, 2, 5]))
    )
    while payload:
        step = dice.choice([len(payload), len(payload), 1, 4, 5, 6, 100, 16_384])
        frames.append(h2.frame(h2.DATA, 0, stream, payload[: min(step, 16_384)]))
        payload = payload[min(step, 16_384) :]
        if len(frames) > 40:
            break
    if dice.random() < 0.85:
        frames.append(h2.frame(h2.DATA, h2.END_STREAM, stream))
    if dice.random() < 0.1:
        frames.append(h2.rst_stream(stream, dice.choice([0, 8, 1, 0xFFFFFFFF])))
    return frames


def other_frame(dice: random.Random) -> bytes:
    stream = dice.choice([0, 0, 1, 3, 5, 7, 2, 0x7FFFFFFF])
    return dice.choice(
        [
            lambda: h2.ping(dice.randbytes(8)),
            lambda: h2.frame(h2.PING, h2.ACK, 0, dice.choice([b"razzodrn", b"razzoliv", dice.randbytes(8)])),
            lambda: h2.settings((dice.randrange(1, 10), dice.choice([0, 1, 100, 65_535, 1 << 30, 0xFFFFFFFF]))),
            lambda: h2.settings((h2.INITIAL_WINDOW_SIZE, dice.choice([0, 1, 10, 1_000, 0x7FFFFFFF]))),
            lambda: h2.frame(h2.SETTINGS, h2.ACK, 0),
            lambda: h2.window_update(stream, dice.choice([1, 100, 65_535, 0x7FFFFFFF, 0])),
            lambda: h2.rst_stream(stream, dice.randrange(14)),
            lambda: h2.frame(h2.PRIORITY, 0, stream, struct.pack(">IB", dice.choice([0, 1, stream]), 7)),
            lambda: h2.frame(h2.GOAWAY, 0, 0, struct.pack(">II", stream, dice.randrange(14)) + b"bye"),
            lambda: h2.frame(dice.randrange(256), dice.randrange(256), stream, dice.randbytes(dice.randrange(40))),
        ]
    )()


def mutated(dice: random.Random, frames: list[bytes]) -> bytes:
    """The bytes of a connection with some faults in them; half have none."""
    faults = dice.choice([0, 0, 0, 0, 0, 1, 1, 1, 2, 8])
    for _ in range(faults):
        at = dice.randrange(len(frames))
        match dice.randrange(8):
            case 0:
                frames[at] = frames[dice.randrange(len(frames))]
            case 1:
                frames.insert(at, dice.choice(frames))
            case 2 if len(frames) > 1:
                del frames[at]
            case 3:
                other = dice.randrange(len(frames))
                frames[at], frames[other] = frames[other], frames[at]
            case 4:  # a byte of a frame's head
                head = bytearray(frames[at])
                head[dice.randrange(min(9, len(head)))] ^= 1 << dice.randrange(8)
                frames[at] = bytes(head)
            case 5:
                body = bytearray(frames[at])
                for _ in range(dice.choice([1, 1, 3, 20])):
                    body[dice.randrange(len(body))] = dice.randrange(256)
                frames[at] = bytes(body)
            case 6:
                frames[at] = frames[at][: dice.randrange(len(frames[at]) + 1)] or b"\0"
            case _:
                frames.insert(at, dice.randbytes(dice.randrange(1, 60)))
    return b"".join(frames)


def connection_bytes(dice: random.Random) -> bytes:
    if dice.random() < 0.02:
        return dice.randbytes(dice.randrange(1, 3_000))
    encoder = hpack.Encoder()
    calls = [call_frames(dice, encoder, 1 + 2 * number) for number in range(dice.randrange(1, 7))]
    frames = [h2.settings((h2.INITIAL_WINDOW_SIZE, dice.choice([65_535, 65_535, 0, 5, 1 << 20])))]
    if dice.random() < 0.5:  # interleaved; a header block stays whole
        while calls:
            queue = dice.choice(calls)
            frames.append(queue.pop(0))
            while queue and queue[0][3] == h2.CONTINUATION:
                frames.append(queue.pop(0))
            if not queue:
                calls.remove(queue)
    else:
        frames += [piece for call in calls for piece in call]
    for _ in range(dice.choice([0, 0, 0, 0, 1, 3])):
        frames.insert(dice.randrange(len(frames) + 1), other_frame(dice))
    return h2.PREFACE + mutated(dice, frames)


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.probe = Probe()
        self.door = Door(asyncio.get_running_loop(), self.probe.table, LIMITS, Observers())
        self.came: Counter[str] = Counter()

    async def feed(self, number: int) -> None:
        dice = random.Random(f"{self.seed} {number}")
        data = connection_bytes(dice)
        cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(READS_MAX)))
        protocol, sink = self.door.protocol(False), Sink()
        protocol.connection_made(sink)
        paused = False
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if sink.ended:
                break
            protocol.data_received(data[start:end])
            if dice.random() < 0.3:
                await asyncio.sleep(0)
            if dice.random() < 0.05 and not sink.ended:
                paused = not paused
                protocol.pause_writing() if paused else protocol.resume_writing()
            if dice.random() < 0.1:
                self.answer_held(dice)
        if dice.random() < 0.1 and not sink.ended:
            dice.choice([protocol.begin_drain, protocol.finish_drain, protocol.cut, protocol.abort, self.door.sweep])()
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        if dice.random() < 0.5:
            self.answer_held(dice)
        self.came["closed by the door" if sink.ended else "cut by the client"] += 1
        self.came["bytes written"] += len(sink.written)
        protocol.connection_lost(None)
        self.answer_held(dice)

    def answer_held(self, dice: random.Random) -> None:
        held, self.probe.held = self.probe.held, []
        for call in held:
            call.answer(call.request * dice.choice([0, 1, 100]))
        self.came["held"] += len(held)

    async def check(self, upto: int) -> None:
        """Nothing is left, and a good call is served."""
        for _ in range(20):
            await asyncio.sleep(0)
        in_flight = sum(counts.in_flight for counts in self.door.counts().values())
        left = len(self.door.connections), len(self.door.running), in_flight
        assert left == (0, 0, 0), f"connections, tasks and calls left after input {upto}: {left}"
        gc.collect()
        assert streams_alive() == 0, f"{streams_alive()} streams left after input {upto}"
        protocol, sink = self.door.protocol(False), Sink()
        protocol.connection_made(sink)
        encoder = hpack.Encoder()
        good = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, encoder.encode(h2.grpc_headers(path("EchoBatch"))))
        protocol.data_received(h2.PREFACE + h2.settings() + good + h2.data_frames(1, h2.grpc_message(b"a good call")))
        assert b"a good call" in sink.written, f"a good call is not served after input {upto}"
        protocol.connection_lost(None)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def fuzz(settings: argparse.Namespace) -> dict[str, Any]:
    fuzzer = Fuzzer(settings.seed)
    numbers = range(settings.inputs) if settings.only is None else range(settings.only, settings.only + 1)
    settled = 0
    for number in numbers:
        if settings.trace:
            settings.trace.write_text(str(number))
        await fuzzer.feed(number)
        if (number + 1) % CHECK_EVERY == 0 or number == numbers[-1]:
            await fuzzer.check(number)
        if number == numbers[0] + len(numbers) // 2:
            settled = resident_bytes()
    finished = Counter[str]()
    for counts in fuzzer.door.counts().values():
        finished.update({status.name: count for status, count in counts.by_status.items()})
    return {
        "inputs": len(numbers),
        "grown_bytes": resident_bytes() - settled,
        "came": dict(fuzzer.came),
        "finished": dict(finished),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="feed this one input")
    parser.add_argument("--trace", type=Path, help="file that names the input being fed")
    logging.disable(logging.CRITICAL)  # refused frames are what this is about
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(fuzz(parser.parse_args()))))


if __name__ == "__main__":
    main()
