"""Raw forwarding of calls to another node's peer address: bytes in, bytes out, deadline and metadata carried over.

One channel for each address, shared by all calls (HTTP/2 carries them side by side), opened at the first call and
closed when the broker left the cluster view. A forwarded call carries ``x-razzo-forwarded`` and is not forwarded again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import grpc.aio

from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault
from razzo.protocol.limits import REQUEST_BYTES_MAX
from razzo.runtime.logs import fields
from razzo.runtime.requests import CLIENT_ID, CLIENT_VERSION, FORWARDED, FORWARDED_PEER, LANGUAGE, Caller, CallInfo
from razzo.runtime.status import PeerFailed
from razzo.v1 import registry_pb2

log = logging.getLogger(__name__)

Metadata: TypeAlias = "Sequence[tuple[str, str | bytes]]"

_NOT_CARRIED = frozenset({"user-agent", "content-type", "te", "host", FORWARDED, FORWARDED_PEER})


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """Bounds of forwarding."""

    #: channels open at once; the one used longest ago is closed for the next
    channels_max: int = 1_024
    #: calls in flight to one address, waiting receives included; the next one is refused (42900)
    calls_per_channel_max: int = 8_192
    #: seconds a call may take whose client set no deadline
    timeout_s: float = 60.0
    #: seconds that calls in flight get when their channel is closed
    close_grace_s: float = 5.0
    #: between attempts to reach an address that refused: at first, and at most
    reconnect_ms: int = 100
    reconnect_ms_max: int = 1_000
    #: silence after which a connection with calls in flight is probed, and the wait for the answer
    keepalive_ms: int = 10_000
    keepalive_timeout_ms: int = 5_000


class _Peer:
    """The channel to one address and the calls on it."""

    def __init__(self, address: str, limits: ForwardLimits) -> None:
        self.address = address
        self.calls = 0
        self.channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
                ("grpc.max_send_message_length", REQUEST_BYTES_MAX),
                ("grpc.initial_reconnect_backoff_ms", limits.reconnect_ms),
                ("grpc.min_reconnect_backoff_ms", limits.reconnect_ms_max),
                ("grpc.max_reconnect_backoff_ms", limits.reconnect_ms_max),
                ("grpc.keepalive_time_ms", limits.keepalive_ms),
                ("grpc.keepalive_timeout_ms", limits.keepalive_timeout_ms),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
            ],
        )


class Forwarder:
    """Shared channels to peers. Used on one event loop."""

    def __init__(self, limits: ForwardLimits | None = None) -> None:
        self._limits = limits or ForwardLimits()
        self._peers: dict[str, _Peer] = {}  # used longest ago first
        self._closing: set[asyncio.Task[None]] = set()

    async def unary(
        self, address: str, path: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> bytes:
        """The answer of a unary call. PeerFailed when the peer does not give one; BrokerFault (42900) when too many
        calls wait for it."""
        peer = self._enter(address)
        try:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = peer.channel.unary_unary(path)
            call = method(request, timeout=self._timeout(timeout_s), metadata=_pairs(metadata))
            return await call
        except grpc.aio.AioRpcError as error:
            raise _failed(address, error) from error
        except asyncio.CancelledError:
            raise _cancelled_by_us(address) from None
        finally:
            peer.calls -= 1

    async def stream(
        self, address: str, path: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The messages of a server-streaming call, as they come. The call is cancelled when the iterator is closed or
        its task is cancelled. Fails as `unary` does."""
        peer = self._enter(address)
        call: Any = None
        try:
            method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = peer.channel.unary_stream(path)
            call = method(request, timeout=self._timeout(timeout_s), metadata=_pairs(metadata))
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise _failed(address, error) from error
        except asyncio.CancelledError:
            raise _cancelled_by_us(address) from None
        finally:
            peer.calls -= 1
            if call is not None:
                call.cancel()

    def retain(self, addresses: Iterable[str]) -> None:
        """Closes the channels to all other addresses."""
        kept = set(addresses)
        for address in [address for address in self._peers if address not in kept]:
            self._close(self._peers.pop(address))

    def open_channels(self) -> list[str]:
        return list(self._peers)

    async def close(self) -> None:
        self.retain(())
        if self._closing:
            await asyncio.wait(self._closing)

    def _enter(self, address: str) -> _Peer:
        peer = self._peers.pop(address, None)
        if peer is None:
            if len(self._peers) >= self._limits.channels_max:
                self._close(self._peers.pop(next(iter(self._peers))))
            peer = _Peer(address, self._limits)
        self._peers[address] = peer
        if peer.calls >= self._limits.calls_per_channel_max:
            raise BrokerFault(Code.TOO_MANY_REQUESTS, f"too many calls wait for {address}")
        peer.calls += 1
        return peer

    def _close(self, peer: _Peer) -> None:
        log.debug("channel closed", extra=fields(peer=peer.address, calls=peer.calls))
        task = asyncio.get_running_loop().create_task(peer.channel.close(self._limits.close_grace_s))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _timeout(self, timeout_s: float | None) -> float:
        return self._limits.timeout_s if timeout_s is None else max(0.0, timeout_s)


def carried_metadata(call: CallInfo) -> list[tuple[str, str | bytes]]:
    """The metadata to send on: the client's own, the mark of a forwarded call, and the client's address.

    A client's own marks are not carried: only a call that came on a peer port may have them, and such a call is not
    forwarded again.
    """
    pairs = [(key, value) for key, value in call.metadata() if key not in _NOT_CARRIED and not key.startswith("grpc-")]
    pairs.append((FORWARDED, "1"))
    pairs.append((FORWARDED_PEER, call.peer))
    return pairs


def metadata_of(caller: Caller) -> list[tuple[str, str | bytes]]:
    """The metadata of a call that a node makes for a client on its own; names in it are effective names."""
    pairs: list[tuple[str, str | bytes]] = [(CLIENT_ID, caller.client_id)]
    if caller.language:
        pairs.append((LANGUAGE, caller.language))
    if caller.version:
        pairs.append((CLIENT_VERSION, caller.version))
    pairs.append((FORWARDED, "1"))
    pairs.append((FORWARDED_PEER, caller.peer))
    return pairs


def peer_address(broker: registry_pb2.BrokerInfo) -> str:
    """The peer address of a broker as a gRPC target."""
    return target(broker.peer.host, broker.peer.port)


def target(host: str, port: int) -> str:
    """``host:port`` as gRPC dials it, IPv6 in brackets."""
    bare = host.strip("[]")
    try:
        if ipaddress.ip_address(bare).version == 6:
            return f"[{bare}]:{port}"
    except ValueError:
        pass  # a name
    return f"{bare}:{port}"


def _pairs(metadata: Metadata) -> grpc.aio.Metadata:
    return grpc.aio.Metadata(*metadata)


def _cancelled_by_us(address: str) -> BaseException:
    """grpc.aio reports a channel that was closed under a call as a cancellation, though nobody cancelled the caller."""
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        return asyncio.CancelledError()
    return PeerFailed(grpc.StatusCode.UNAVAILABLE, f"{address} left the cluster")


def _failed(address: str, error: grpc.aio.AioRpcError) -> PeerFailed:
    status = error.code()
    if status is grpc.StatusCode.UNAVAILABLE:
        text = f"{address} cannot be reached"
    elif status is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"{address} did not answer in time"
    else:
        text = error.details() or status.name
    return PeerFailed(status, text)
