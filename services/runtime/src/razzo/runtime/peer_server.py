"""The server of a peer port: a method table on grpc.aio, plaintext, with reflection behind a setting.

It takes what has the shape of `razzo.door.MethodTable` (this floor does not import the door) and gives handlers calls
of the same shape, so that one handler serves clients and peers alike. A `unary_batch` handler gets batches of one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]

from apache.rocketmq.v2 import well_known
from razzo.protocol.limits import REQUEST_BYTES_MAX
from razzo.runtime.logs import fields
from razzo.runtime.status import CallRefused, grpc_status

log = logging.getLogger(__name__)

INTERNAL_TEXT = "internal error"
_RESERVED = ("grpc-", ":")


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Bounds of a peer port."""

    #: largest message in either direction, bytes; RESOURCE_EXHAUSTED above
    message_bytes_max: int = REQUEST_BYTES_MAX
    #: concurrent calls of one connection; further ones wait in the peer
    streams_per_connection_max: int = 16_384
    #: silence after which a connection is probed, and the wait for the answer: so a machine's death is noticed
    keepalive_ms: int = 10_000
    keepalive_timeout_ms: int = 5_000


class KindLike(Protocol):
    @property
    def value(self) -> str: ...


class MethodLike(Protocol):
    """The shape of `razzo.door.methods.Method`."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> KindLike: ...

    @property
    def handler(self) -> Any: ...


class PeerServer:
    """Serves a method table to peers. Built and used on one running event loop."""

    def __init__(
        self,
        table: Iterable[MethodLike],
        limits: PeerLimits | None = None,
        *,
        reflected: Sequence[str] = (),
    ) -> None:
        """`reflected`: names of the services that reflection describes; none leaves reflection off."""
        self._handlers = {method.path: _rpc_handler(method) for method in table}
        self._limits = limits or PeerLimits()
        self._reflected = tuple(reflected)
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; the port, also when 0 asked for any. OSError when the address is taken."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._limits.message_bytes_max),
                ("grpc.max_send_message_length", self._limits.message_bytes_max),
                ("grpc.max_concurrent_streams", self._limits.streams_per_connection_max),
                ("grpc.keepalive_time_ms", self._limits.keepalive_ms),
                ("grpc.keepalive_timeout_ms", self._limits.keepalive_timeout_ms),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.so_reuseport", 0),
            ]
        )
        server.add_generic_rpc_handlers((_Handlers(self._handlers),))
        if self._reflected:
            reflection.enable_server_reflection(
                (*self._reflected, reflection.SERVICE_NAME), server, pool=_pool_of(self._reflected)
            )
        bare = host.strip("[]")
        try:
            bound = server.add_insecure_port(f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error}") from error
        await server.start()
        self._server = server
        return bound

    async def stop(self, grace_s: float) -> None:
        """No new calls; calls in flight get `grace_s` seconds, then are cancelled."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handlers.get(handler_call_details.method)


class PeerCall:
    """One call of a peer: the shape of `razzo.door.methods.Call`."""

    __slots__ = ("_context", "_requests", "path")

    def __init__(self, path: str, context: Any, requests: AsyncIterator[bytes] | None = None) -> None:
        self.path = path
        self._context = context
        self._requests = requests

    @property
    def peer(self) -> str:
        return unquote(self._context.peer())

    @property
    def secure(self) -> bool:
        return False

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        pairs = self._context.invocation_metadata() or ()
        return tuple((key, value) for key, value in pairs if not key.startswith(_RESERVED))

    def header(self, key: str) -> str | None:
        for name, value in self._context.invocation_metadata() or ():
            if name == key and isinstance(value, str):
                return value
        return None

    def time_remaining(self) -> float | None:
        remaining: float | None = self._context.time_remaining()
        return remaining

    async def send_initial_metadata(self, metadata: Sequence[tuple[str, str | bytes]] = ()) -> None:
        await self._context.send_initial_metadata(tuple(metadata))

    def set_trailing_metadata(self, metadata: Sequence[tuple[str, str | bytes]]) -> None:
        self._context.set_trailing_metadata(tuple(metadata))

    async def write(self, message: bytes) -> None:
        await self._context.write(message)

    async def write_raw(self, frames: bytes) -> None:
        """Messages already framed for gRPC: a flag byte (0), four bytes of length, the message; repeated."""
        at = 0
        while at < len(frames):
            end = at + 5 + int.from_bytes(frames[at + 1 : at + 5], "big")
            await self.write(frames[at + 5 : end])
            at = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._requests is None:
            raise TypeError(f"{self.path} has one request, which its handler was given")
        async for request in self._requests:
            yield request


class _PeerBatchCall(PeerCall):
    """One call of a `unary_batch` handler: the shape of `razzo.door.methods.BatchCall`."""

    __slots__ = ("outcome", "request")

    def __init__(self, path: str, context: Any, request: bytes) -> None:
        super().__init__(path, context)
        self.request = request
        self.outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answer(self, response: bytes) -> None:
        if not self.outcome.cancelled():
            self.outcome.set_result(response)

    def fail(self, status: Any, message: str) -> None:
        """`status` is a `razzo.door.methods.GrpcStatus`."""
        if not self.outcome.cancelled():
            self.outcome.set_exception(CallRefused(grpc_status(status.value), message))


def _rpc_handler(method: MethodLike) -> Any:
    path, handler = method.path, method.handler

    async def unary_batch(request: bytes, context: Any) -> bytes:
        call = _PeerBatchCall(path, context, request)
        try:
            handler([call])
            return await call.outcome
        except Exception as error:
            return await _abort(path, context, error)

    async def unary(request: bytes, context: Any) -> bytes:
        try:
            answer: bytes = await handler(request, PeerCall(path, context))
        except Exception as error:
            return await _abort(path, context, error)
        return answer

    async def server_stream(request: bytes, context: Any) -> None:
        try:
            await handler(request, PeerCall(path, context))
        except Exception as error:
            await _abort(path, context, error)

    async def bidi(requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            await handler(PeerCall(path, context, requests))
        except Exception as error:
            await _abort(path, context, error)

    kinds: dict[str, Callable[[], Any]] = {
        "unary_batch": lambda: grpc.unary_unary_rpc_method_handler(unary_batch),
        "unary": lambda: grpc.unary_unary_rpc_method_handler(unary),
        "server_stream": lambda: grpc.unary_stream_rpc_method_handler(server_stream),
        "bidi": lambda: grpc.stream_stream_rpc_method_handler(bidi),
    }
    return kinds[method.kind.value]()


async def _abort(path: str, context: Any, error: Exception) -> bytes:
    """Ends the call with the gRPC status that `error` names, or INTERNAL; never returns."""
    if isinstance(error, CallRefused):
        await context.abort(error.status, error.message)
    number = getattr(getattr(error, "status", None), "value", None)
    if isinstance(number, int):  # razzo.door.methods.RpcError
        await context.abort(grpc_status(number), str(getattr(error, "message", error)))
    if isinstance(error, grpc.aio.AbortError):
        raise error
    log.error("handler failed", extra=fields(path=path), exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, INTERNAL_TEXT)
    raise AssertionError("abort raises")


def _pool_of(services: Iterable[str]) -> Any:
    """One descriptor pool with the files of all `services`: ours of RocketMQ live in a pool of their own, the others in
    protobuf's default one. KeyError for a service of neither."""
    merged = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file: Any) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for needed in file.dependencies:
            add(needed)
        merged.AddSerializedFile(file.serialized_pb)

    for service in services:
        try:
            add(well_known.POOL.FindServiceByName(service).file)
        except KeyError:
            add(descriptor_pool.Default().FindServiceByName(service).file)
    add(reflection_pb2.DESCRIPTOR)
    return merged
