"""The forwarder and the peer server against each other, on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import grpc
import pytest

from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault
from razzo.runtime.forwarding import Forwarder, ForwardLimits
from razzo.runtime.peer_server import PeerServer
from razzo.runtime.status import CallRefused, PeerFailed

WAIT_S = 5.0


class Kind(Enum):
    UNARY_BATCH = "unary_batch"
    UNARY = "unary"
    SERVER_STREAM = "server_stream"
    BIDI = "bidi"


class Number(Enum):
    """The shape of `razzo.door.methods.GrpcStatus`."""

    ABORTED = 10


class DoorError(Exception):
    """The shape of `razzo.door.methods.RpcError`."""

    def __init__(self) -> None:
        super().__init__("door")
        self.status, self.message = Number.ABORTED, "by the door"


@dataclass
class Method:
    path: str
    kind: Kind
    handler: Callable[..., Any]


class Peer:
    """A peer with one method of each kind."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.waiting = asyncio.Event()
        self.seen: list[tuple[bytes, dict[str, Any], float | None, str]] = []
        self.server = PeerServer(
            (
                Method("/s/Echo", Kind.UNARY, self.echo),
                Method("/s/Batch", Kind.UNARY_BATCH, self.batch),
                Method("/s/Wait", Kind.UNARY, self.wait),
                Method("/s/Refuse", Kind.UNARY, self.refuse),
                Method("/s/Count", Kind.SERVER_STREAM, self.count),
                Method("/s/Hold", Kind.SERVER_STREAM, self.hold),
            )
        )
        self.address = ""

    async def echo(self, request: bytes, call: Any) -> bytes:
        self.seen.append((request, dict(call.metadata()), call.time_remaining(), call.header("x-own") or ""))
        return request

    def batch(self, calls: list[Any]) -> None:
        for call in calls:
            if call.request == b"bad":
                call.fail(Number.ABORTED, "bad")
            else:
                call.answer(call.request[::-1])

    async def wait(self, request: bytes, call: Any) -> bytes:
        self.waiting.set()
        await self.release.wait()
        return request

    async def refuse(self, request: bytes, call: Any) -> bytes:
        raise {b"refused": CallRefused(grpc.StatusCode.NOT_FOUND, "not here"), b"door": DoorError()}.get(
            request, ValueError("secret")
        )

    async def count(self, request: bytes, call: Any) -> None:
        await call.write(b"1")
        await call.write_raw(b"\x00\x00\x00\x00\x012" + b"\x00\x00\x00\x00\x0233")

    async def hold(self, request: bytes, call: Any) -> None:
        await call.write(b"first")
        self.waiting.set()
        await self.release.wait()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    peer.address = f"127.0.0.1:{await peer.server.start('127.0.0.1', 0)}"
    yield peer
    await peer.server.stop(0)


@pytest.fixture
async def forwarder() -> AsyncIterator[Forwarder]:
    forwarder = Forwarder(ForwardLimits(channels_max=2, calls_per_channel_max=2, close_grace_s=0.0))
    yield forwarder
    await forwarder.close()


async def failure(awaitable: Any) -> PeerFailed:
    with pytest.raises(PeerFailed) as failed:
        await asyncio.wait_for(awaitable, WAIT_S)
    return failed.value


async def test_a_call_keeps_bytes_metadata_and_deadline(peer: Peer, forwarder: Forwarder) -> None:
    metadata = [("x-own", "1"), ("x-own-bin", b"\x00\xff")]
    assert await forwarder.unary(peer.address, "/s/Echo", b"\x00request", metadata, 4.0) == b"\x00request"
    ((request, seen, remaining, own),) = peer.seen
    assert request == b"\x00request"
    assert seen["x-own-bin"] == b"\x00\xff"
    assert own == "1"
    assert not any(key.startswith("grpc-") for key in seen)
    assert remaining is not None
    assert 1.0 < remaining < 4.5


async def test_batch_handlers_serve_peers_too(peer: Peer, forwarder: Forwarder) -> None:
    answers = await asyncio.gather(*(forwarder.unary(peer.address, "/s/Batch", text) for text in (b"ab", b"cd")))
    assert answers == [b"ba", b"dc"]
    assert (await failure(forwarder.unary(peer.address, "/s/Batch", b"bad"))).grpc_status is grpc.StatusCode.ABORTED


@pytest.mark.parametrize(
    ("request_", "status", "text"),
    [
        (b"refused", grpc.StatusCode.NOT_FOUND, "not here"),
        (b"door", grpc.StatusCode.ABORTED, "by the door"),
        (b"bug", grpc.StatusCode.INTERNAL, "internal error"),
    ],
)
async def test_errors_arrive_as_they_were_meant(
    peer: Peer, forwarder: Forwarder, request_: bytes, status: grpc.StatusCode, text: str
) -> None:
    failed = await failure(forwarder.unary(peer.address, "/s/Refuse", request_))
    assert (failed.grpc_status, failed.message) == (status, text)


async def test_unknown_methods_and_absent_peers(peer: Peer, forwarder: Forwarder) -> None:
    failed = await failure(forwarder.unary(peer.address, "/s/Nothing", b""))
    assert failed.code is Code.NOT_IMPLEMENTED
    await peer.server.stop(0)
    failed = await failure(forwarder.unary(peer.address, "/s/Echo", b""))
    assert failed.grpc_status is grpc.StatusCode.UNAVAILABLE
    assert failed.code is Code.INTERNAL_SERVER_ERROR
    assert failed.message == f"{peer.address} cannot be reached"


async def test_a_deadline_is_a_timeout(peer: Peer, forwarder: Forwarder) -> None:
    failed = await failure(forwarder.unary(peer.address, "/s/Wait", b"", (), 0.05))
    assert failed.code is Code.PROXY_TIMEOUT


async def test_streams_come_message_by_message(peer: Peer, forwarder: Forwarder) -> None:
    assert [message async for message in forwarder.stream(peer.address, "/s/Count", b"")] == [b"1", b"2", b"33"]
    stream = forwarder.stream(peer.address, "/s/Hold", b"")
    assert await anext(stream) == b"first"
    await stream.aclose()


async def test_too_many_calls_to_one_peer_are_refused_and_others_go_on(peer: Peer, forwarder: Forwarder) -> None:
    waiting = [asyncio.create_task(forwarder.unary(peer.address, "/s/Wait", b"")) for _ in range(2)]
    await asyncio.wait_for(peer.waiting.wait(), WAIT_S)
    with pytest.raises(BrokerFault) as refused:
        await forwarder.unary(peer.address, "/s/Echo", b"")
    assert refused.value.code is Code.TOO_MANY_REQUESTS
    peer.release.set()
    assert await asyncio.gather(*waiting) == [b"", b""]
    assert await forwarder.unary(peer.address, "/s/Echo", b"x") == b"x"


async def test_a_peer_that_left_loses_its_calls_but_cancels_nobody(peer: Peer, forwarder: Forwarder) -> None:
    call = asyncio.create_task(forwarder.unary(peer.address, "/s/Wait", b""))
    await asyncio.wait_for(peer.waiting.wait(), WAIT_S)
    forwarder.retain(())
    assert forwarder.open_channels() == []
    assert (await failure(call)).grpc_status is grpc.StatusCode.UNAVAILABLE


async def test_a_cancelled_caller_stays_cancelled(peer: Peer, forwarder: Forwarder) -> None:
    call = asyncio.create_task(forwarder.unary(peer.address, "/s/Wait", b""))
    await asyncio.wait_for(peer.waiting.wait(), WAIT_S)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_channels_are_bounded(peer: Peer, forwarder: Forwarder) -> None:
    await forwarder.unary(peer.address, "/s/Echo", b"")
    for port in (1, 2):
        await failure(forwarder.unary(f"127.0.0.1:{port}", "/s/Echo", b"", (), 1.0))
    assert forwarder.open_channels() == ["127.0.0.1:1", "127.0.0.1:2"], "the one used longest ago was closed"


async def test_a_taken_port_is_an_os_error(peer: Peer) -> None:
    with pytest.raises(OSError, match="cannot listen"):
        await PeerServer(()).start("127.0.0.1", int(peer.address.rpartition(":")[2]))
