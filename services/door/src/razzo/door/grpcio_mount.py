"""The method table on grpc.aio: the slow, sure server that the native door is tested against.

grpcio tells plaintext from TLS by port only, so a server with TLS files listens on two ports. It has no settings for
`DoorLimits.buffered_request_bytes_max`, `unsent_*`, `pings_per_s_max`, `resets_per_s_max` and `connections_max`; C-core
bounds those matters in ways of its own. Pings are never punished: the C++ client pings every 60 s without calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio

from razzo.door import framing
from razzo.door.methods import GrpcStatus, Kind, Metadata, Method, MethodTable, RpcError
from razzo.door.observers import AccessRecord, MethodCounts, Observers
from razzo.door.server import Bound, DoorLimits, TlsFiles
from razzo.door.tls import CertificateWatch

log = logging.getLogger(__name__)

INTERNAL_TEXT = "internal error"
PENDING_CALLS_MAX = 100_000
"""Calls that have arrived and were not yet taken, over all connections; the next is cancelled."""
TURNS_AFTER_LAST_REQUEST = 3
"""Loop turns between the end of a client's messages and telling the handler so. C-core reports a cancelled call first
as an end of messages, and as cancelled some turns later; mostly this lets the handler see the second only."""
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class _CallInfo:
    """`CallInfo` over a grpc.aio context."""

    __slots__ = ("_context", "path")

    def __init__(self, path: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.path = path
        self._context = context

    @property
    def peer(self) -> str:
        return unquote(self._context.peer())

    @property
    def secure(self) -> bool:
        return b"ssl" in self._context.auth_context().get("transport_security_type", ())

    def metadata(self) -> Metadata:
        pairs = self._context.invocation_metadata() or ()
        return tuple((key, value) for key, value in pairs if not key.startswith("grpc-"))

    def header(self, key: str) -> str | None:
        for name, value in self._context.invocation_metadata() or ():
            if name == key and isinstance(value, str):
                return value
        return None

    def time_remaining(self) -> float | None:
        return self._context.time_remaining()


class _BatchCall(_CallInfo):
    """One call of a batch; its coroutine waits for `outcome`."""

    __slots__ = ("outcome", "request")

    def __init__(self, path: str, context: grpc.aio.ServicerContext[Any, Any], request: bytes) -> None:
        super().__init__(path, context)
        self.request = request
        self.outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answer(self, response: bytes) -> None:
        if not self.outcome.cancelled():
            self.outcome.set_result(response)

    def fail(self, status: GrpcStatus, message: str) -> None:
        if not self.outcome.cancelled():
            self.outcome.set_exception(RpcError(status, message))


class _Batcher:
    """Gathers the calls of one loop iteration for a ``unary_batch`` handler."""

    def __init__(self, handler: Callable[[list[Any]], None], calls_max: int) -> None:
        self._handler = handler
        self._calls_max = calls_max
        self._waiting: list[_BatchCall] = []

    def add(self, call: _BatchCall) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        self._waiting.append(call)

    def _run(self) -> None:
        waiting = [call for call in self._waiting if not call.outcome.done()]
        self._waiting = []
        for start in range(0, len(waiting), self._calls_max):
            batch = waiting[start : start + self._calls_max]
            try:
                self._handler(list(batch))
            except Exception:
                log.exception("batch handler of %s failed with %d calls", batch[0].path, len(batch))
                for call in batch:
                    if not call.outcome.done():
                        call.fail(GrpcStatus.INTERNAL, INTERNAL_TEXT)


class _Call(_CallInfo):
    """`Call` over a grpc.aio context."""

    __slots__ = ("_requests", "_response_bytes_max", "bytes_in", "bytes_out")

    def __init__(
        self,
        path: str,
        context: grpc.aio.ServicerContext[Any, Any],
        requests: AsyncIterator[bytes] | None,
        response_bytes_max: int,
    ) -> None:
        super().__init__(path, context)
        self._requests = requests
        self._response_bytes_max = response_bytes_max
        self.bytes_in = 0
        self.bytes_out = 0

    async def send_initial_metadata(self, metadata: Metadata = ()) -> None:
        await self._context.send_initial_metadata(tuple(metadata))

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._context.set_trailing_metadata(tuple(metadata))

    async def write(self, message: bytes) -> None:
        _check_size(message, self._response_bytes_max)
        self.bytes_out += len(message)
        try:
            await self._context.write(message)
        except grpc.aio.InternalError as error:  # the client went; C-core says so here before it cancels
            raise asyncio.CancelledError from error

    async def write_raw(self, frames: bytes) -> None:
        for message in framing.split_frames(frames):
            await self.write(message)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._requests is None:
            raise TypeError(f"{self.path} has one request, which its handler was given")
        async for request in self._requests:
            self.bytes_in += len(request)
            yield request
        for _ in range(TURNS_AFTER_LAST_REQUEST):
            await asyncio.sleep(0)


def _check_size(message: bytes, response_bytes_max: int) -> None:
    if len(message) > response_bytes_max:
        text = f"answer of {len(message)} bytes is larger than {response_bytes_max}"
        raise RpcError(GrpcStatus.RESOURCE_EXHAUSTED, text)


async def _abort(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, text: str) -> None:
    try:
        await context.abort(code, text)
    except grpc.aio.InternalError as error:  # nobody is left to be told
        raise asyncio.CancelledError from error


class _Endings:
    """What observers want to know of the calls of one method, and the one place where an exception becomes a status."""

    def __init__(self, path: str, observers: Observers, response_bytes_max: int, turn: Callable[[], bool]) -> None:
        self._path = path
        self._observers = observers
        self._response_bytes_max = response_bytes_max
        self._log_turn = turn
        self.counts = MethodCounts()

    async def run(
        self, call: _Call | _BatchCall, context: grpc.aio.ServicerContext[Any, Any], body: Awaitable[bytes | None]
    ) -> bytes | None:
        begun = time.monotonic()
        status = GrpcStatus.CANCELLED
        answer: bytes | None = None
        self.counts.begin()
        try:
            if self._observers.authenticate is not None:
                self._observers.authenticate(call)
            answer = await body
            if answer is not None:
                _check_size(answer, self._response_bytes_max)
            status = GrpcStatus.OK
        except asyncio.CancelledError:
            if context.time_remaining() == 0:
                status = GrpcStatus.DEADLINE_EXCEEDED
            raise
        except RpcError as refusal:
            answer = None
            status = refusal.status
            await _abort(context, _CODES[refusal.status.value], refusal.message)
        except Exception:
            log.exception("handler of %s failed", self._path)
            status = GrpcStatus.INTERNAL
            await _abort(context, grpc.StatusCode.INTERNAL, INTERNAL_TEXT)
        finally:
            if hasattr(body, "close"):
                body.close()
            duration_s = time.monotonic() - begun
            self.counts.end(status, duration_s)
            if self._observers.access_log is not None and self._log_turn():
                self._report(call, status, duration_s, answer)
        return answer

    def _report(self, call: _Call | _BatchCall, status: GrpcStatus, duration_s: float, answer: bytes | None) -> None:
        assert self._observers.access_log is not None
        if isinstance(call, _Call):
            sizes = call.bytes_in, call.bytes_out + len(answer or b"")
        else:
            sizes = len(call.request), len(answer or b"")
        self._observers.access_log(AccessRecord(call.path, call.peer, call.secure, status, duration_s, *sizes))


class _Table(grpc.GenericRpcHandler):
    """grpcio's view of a method table: handlers by path, bytes in and out."""

    def __init__(self, table: MethodTable, limits: DoorLimits, observers: Observers) -> None:
        self._observers = observers
        self._finished = 0
        self.endings = {
            method.path: _Endings(method.path, observers, limits.response_bytes_max, self._log_turn) for method in table
        }
        self._handlers = {method.path: _rpc_handler(method, self.endings[method.path], limits) for method in table}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handlers.get(handler_call_details.method)

    def _log_turn(self) -> bool:
        self._finished += 1
        return self._finished % self._observers.access_log_every == 0


def _rpc_handler(method: Method, endings: _Endings, limits: DoorLimits) -> Any:
    path = method.path
    response_bytes_max = limits.response_bytes_max
    handler: Any = method.handler
    if method.kind is Kind.UNARY_BATCH:
        batcher = _Batcher(handler, limits.batch_calls_max)

        async def unary_batch(request: bytes, context: Any) -> bytes | None:
            call = _BatchCall(path, context, request)

            async def body() -> bytes:
                batcher.add(call)
                return await call.outcome

            return await endings.run(call, context, body())

        return grpc.unary_unary_rpc_method_handler(unary_batch)
    if method.kind is Kind.UNARY:

        async def unary(request: bytes, context: Any) -> bytes | None:
            call = _Call(path, context, None, response_bytes_max)
            call.bytes_in = len(request)
            return await endings.run(call, context, handler(request, call))

        return grpc.unary_unary_rpc_method_handler(unary)
    if method.kind is Kind.SERVER_STREAM:

        async def server_stream(request: bytes, context: Any) -> None:
            call = _Call(path, context, None, response_bytes_max)
            call.bytes_in = len(request)
            await endings.run(call, context, handler(request, call))

        return grpc.unary_stream_rpc_method_handler(server_stream)

    async def bidi(requests: AsyncIterator[bytes], context: Any) -> None:
        call = _Call(path, context, requests, response_bytes_max)
        await endings.run(call, context, handler(call))

    return grpc.stream_stream_rpc_method_handler(bidi)


class GrpcioServer:
    """Serves a method table by grpc.aio. Built and used on one running event loop."""

    def __init__(
        self, table: MethodTable, limits: DoorLimits, tls: TlsFiles | None, observers: Observers | None = None
    ) -> None:
        self._limits = limits
        self._tls = tls
        self._observers = observers or Observers()
        self._table = _Table(table, limits, self._observers)
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int, tls_port: int | None = None) -> Bound:
        server = grpc.aio.server(options=_options(self._limits))
        server.add_generic_rpc_handlers((self._table,))
        address = f"[{host}]" if ":" in host else host
        try:
            bound = self._bind(server, host, address, port, tls_port)
        except RuntimeError as error:
            await server.stop(None)
            raise OSError(f"cannot listen on {address}: port {port} or {tls_port} is taken") from error
        await server.start()
        self._server = server
        return bound

    def _bind(self, server: grpc.aio.Server, host: str, address: str, port: int, tls_port: int | None) -> Bound:
        if self._tls is None:
            return Bound(host, server.add_insecure_port(f"{address}:{port}"), None)
        credentials = _credentials(self._tls)
        if self._tls.compulsory:
            only = server.add_secure_port(f"{address}:{port}", credentials)
            return Bound(host, only, only)
        plain = server.add_insecure_port(f"{address}:{port}")
        return Bound(host, plain, server.add_secure_port(f"{address}:{tls_port or 0}", credentials))

    async def stop(self, grace_s: float) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s)

    def method_counts(self) -> Mapping[str, MethodCounts]:
        if not self._observers.count_calls:
            return {}
        return {path: endings.counts.copy() for path, endings in self._table.endings.items()}


def _options(limits: DoorLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.request_bytes_max),
        ("grpc.max_send_message_length", limits.response_bytes_max),
        ("grpc.max_concurrent_streams", limits.streams_per_connection_max),
        # C-core cancels calls that wait to be taken above these (1,000 and 3,000 by default): a burst of one client
        ("grpc.server.max_pending_requests", PENDING_CALLS_MAX),
        ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS_MAX),
        ("grpc.max_metadata_size", limits.header_bytes_max),
        ("grpc.absolute_max_metadata_size", limits.header_bytes_max),
        ("grpc.max_connection_idle_ms", int(limits.idle_s * 1000)),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_s * 1000)),
        ("grpc.keepalive_time_ms", int(limits.keepalive_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    watch = CertificateWatch(tls)

    def configuration() -> Any:
        key, chain, client_ca = watch.read()
        return grpc.ssl_server_certificate_configuration([(key, chain)], client_ca)

    def fetch() -> Any:
        """Asked by grpcio at each handshake; None keeps the certificate in use."""
        with suppress(OSError):  # files being replaced: the next handshake asks again
            if watch.changed():
                return configuration()
        return None

    return grpc.dynamic_ssl_server_credentials(configuration(), fetch, tls.client_ca is not None)
