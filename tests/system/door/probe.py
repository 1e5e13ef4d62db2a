"""The service that the door's tests call: each method shows one thing that a server can do, and notes what happened.

Tests wait for notes (``await probe.saw("Wait cancelled")``) instead of sleeping.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable

from razzo.door import framing
from razzo.door.methods import BatchCall, Call, CallInfo, GrpcStatus, MethodTable, RpcError, answer_many

SERVICE = "razzo.test.Probe"
PATIENCE_S = 10.0
"""How long a test waits for something that must happen."""


def path(method: str) -> str:
    return f"/{SERVICE}/{method}"


async def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Waits for something that only looking can tell; AssertionError when it does not come true in time."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {patience_s} s: {what}"
        await asyncio.sleep(0.005)


def describe(call: CallInfo) -> bytes:
    """All that a call knows of itself, as JSON; metadata values that are bytes as hex."""
    metadata = [[key, value.hex() if isinstance(value, bytes) else value] for key, value in call.metadata()]
    return json.dumps(
        {
            "path": call.path,
            "peer": call.peer,
            "secure": call.secure,
            "metadata": metadata,
            "client_id": call.header("x-mq-client-id"),
            "absent": call.header("x-absent"),
            "time_remaining": call.time_remaining(),
        }
    ).encode()


def refusal(request: bytes) -> RpcError:
    """``b"5 not here"`` asks for status 5 with the text "not here"."""
    number, _, text = request.decode().partition(" ")
    return RpcError(GrpcStatus(int(number)), text)


class Probe:
    def __init__(self) -> None:
        self.notes: Counter[str] = Counter()
        self.batches: list[int] = []
        self.held: list[BatchCall] = []
        self.flooded_bytes = 0
        self.largest_refused = 0
        self._noted = asyncio.Event()
        self.table = MethodTable()
        for name in ("Echo", "Fail", "Crash", "Mirror", "Describe", "Wait"):
            self.table.unary(path(name), getattr(self, f"_{name.lower()}"))
        for name in ("EchoBatch", "ManyBatch", "FailBatch", "CrashBatch", "DescribeBatch", "HoldBatch"):
            self.table.unary_batch(path(name), getattr(self, f"_{name[:-5].lower()}_batch"))
        for name in ("Count", "Raw", "FailStream", "WaitStream", "Flood"):
            self.table.server_stream(path(name), getattr(self, f"_{name.lower()}"))
        for name in ("Chat", "Total", "FailChat", "Talk", "Deaf"):
            self.table.bidi(path(name), getattr(self, f"_{name.lower()}"))

    def note(self, what: str) -> None:
        self.notes[what] += 1
        self._noted.set()

    async def saw(self, what: str, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.notes[what] < times:
                self._noted.clear()
                await self._noted.wait()

    # unary

    async def _echo(self, request: bytes, call: Call) -> bytes:
        return request

    async def _fail(self, request: bytes, call: Call) -> bytes:
        raise refusal(request)

    async def _crash(self, request: bytes, call: Call) -> bytes:
        raise ValueError("a secret of the server")

    async def _mirror(self, request: bytes, call: Call) -> bytes:
        """Sends ``i-*`` metadata back at the beginning and ``t-*`` at the end; a request names a status to end with."""
        await call.send_initial_metadata([pair for pair in call.metadata() if pair[0].startswith("i-")])
        call.set_trailing_metadata([pair for pair in call.metadata() if pair[0].startswith("t-")])
        if request:
            raise refusal(request)
        return b"mirrored"

    async def _describe(self, request: bytes, call: Call) -> bytes:
        return describe(call)

    async def _wait(self, request: bytes, call: Call) -> bytes:
        return await self._wait_for_ever("Wait")

    async def _wait_for_ever(self, who: str) -> bytes:
        self.note(f"{who} started")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.note(f"{who} cancelled")
            raise
        return b""

    # batches

    def _echo_batch(self, calls: list[BatchCall]) -> None:
        self.batches.append(len(calls))
        for call in calls:
            call.answer(call.request)

    def _many_batch(self, calls: list[BatchCall]) -> None:
        """Echo, all answers in one call."""
        answer_many(calls, [call.request for call in calls])

    def _fail_batch(self, calls: list[BatchCall]) -> None:
        for call in calls:
            error = refusal(call.request)
            call.fail(error.status, error.message)

    def _crash_batch(self, calls: list[BatchCall]) -> None:
        raise ValueError("a secret of the server")

    def _describe_batch(self, calls: list[BatchCall]) -> None:
        for call in calls:
            call.answer(describe(call))

    def _hold_batch(self, calls: list[BatchCall]) -> None:
        """Keeps the calls in `held`; the test answers them."""
        for call in calls:
            self.held.append(call)
            self.note("HoldBatch held")

    # server streams

    async def _count(self, request: bytes, call: Call) -> None:
        """``b"3 10"``: three messages of ten bytes."""
        count, size = (int(word) for word in request.split())
        for number in range(count):
            await call.write(b"%d " % number + bytes(size))

    async def _raw(self, request: bytes, call: Call) -> None:
        """``b"3 10"``: three messages of ten bytes in one `write_raw`."""
        count, size = (int(word) for word in request.split())
        await call.write_raw(b"".join(framing.frame(b"%d " % number + bytes(size)) for number in range(count)))

    async def _failstream(self, request: bytes, call: Call) -> None:
        await call.write(b"first")
        call.set_trailing_metadata([("t-reason", "asked for")])
        raise refusal(request)

    async def _waitstream(self, request: bytes, call: Call) -> None:
        await call.write(b"first")
        await self._wait_for_ever("WaitStream")

    async def _flood(self, request: bytes, call: Call) -> None:
        """Writes messages of the size asked for until the client goes."""
        message = bytes(int(request))
        self.note("Flood started")
        try:
            while True:
                await call.write(message)
                self.flooded_bytes += len(message)
        except asyncio.CancelledError:
            self.note("Flood cancelled")
            raise

    # bidirectional streams

    async def _chat(self, call: Call) -> None:
        """Headers at once, then each message back."""
        await call.send_initial_metadata((("x-welcome", "at once"),))
        self.note("Chat started")
        try:
            async for request in call:
                await call.write(request)
        except asyncio.CancelledError:
            self.note("Chat cancelled")
            raise
        finally:
            self.note("Chat over")

    async def _total(self, call: Call) -> None:
        count = size = 0
        async for request in call:
            count += 1
            size += len(request)
        await call.write(b"%d %d" % (count, size))

    async def _failchat(self, call: Call) -> None:
        async for request in call:
            raise refusal(request)

    async def _talk(self, call: Call) -> None:
        """Writes without waiting for a request, then waits for the client's end."""
        for number in range(10):
            await call.write(b"%d" % number)
        async for _ in call:
            self.note("Talk heard")
        self.note("Talk ended")

    async def _deaf(self, call: Call) -> None:
        """Reads nothing."""
        await self._wait_for_ever("Deaf")
