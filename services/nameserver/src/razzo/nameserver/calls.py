"""How a handler of a client call is mounted: errors become the answer that the call's kind asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message

from razzo.door.methods import Call, GrpcStatus, RpcError
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime.requests import request_id_of
from razzo.runtime.status import CallRefused, refusal_of, status_of

M = TypeVar("M", bound=Message)
Unary: TypeAlias = Callable[[bytes, Call], Awaitable[bytes]]
Stream: TypeAlias = Callable[[bytes, Call], Awaitable[None]]
Bidi: TypeAlias = Callable[[Call], Awaitable[None]]


def decoded(kind: type[M], request: bytes) -> M:
    """The request. RequestRefused (40000) when the bytes are not one."""
    try:
        message: M = kind.FromString(request)
    except DecodeError as error:
        raise RequestRefused(Code.BAD_REQUEST, f"not a {kind.DESCRIPTOR.name}") from error
    return message


def with_status(answer: Callable[..., Any], handler: Unary) -> Unary:
    """A messaging call: every error is a Status inside an ordinary answer, made by ``answer(status=...)``."""

    async def handle(request: bytes, call: Call) -> bytes:
        try:
            return await handler(request, call)
        except Exception as error:
            refused: bytes = answer(status=status_of(error, request_id_of(call))).SerializeToString()
            return refused

    return handle


def stream_with_status(answer: Callable[..., Any], handler: Stream) -> Stream:
    """A streamed messaging call: an error is its one status element, or the gRPC status once messages were sent."""

    async def handle(request: bytes, call: Call) -> None:
        counted = _Counted(call)
        try:
            await handler(request, counted)
        except Exception as error:
            if counted.written:
                raise rpc_error(refusal_of(error, request_id_of(call))) from error
            await call.write(answer(status=status_of(error, request_id_of(call))).SerializeToString())

    return handle


def unary_with_grpc_status(handler: Unary) -> Unary:
    """A call without a Status of its own: errors end it with a gRPC status."""

    async def handle(request: bytes, call: Call) -> bytes:
        try:
            return await handler(request, call)
        except Exception as error:
            raise rpc_error(refusal_of(error, request_id_of(call))) from error

    return handle


def stream_with_grpc_status(handler: Stream) -> Stream:
    async def handle(request: bytes, call: Call) -> None:
        try:
            await handler(request, call)
        except Exception as error:
            raise rpc_error(refusal_of(error, request_id_of(call))) from error

    return handle


def bidi_with_grpc_status(handler: Bidi) -> Bidi:
    async def handle(call: Call) -> None:
        try:
            await handler(call)
        except Exception as error:
            raise rpc_error(refusal_of(error, request_id_of(call))) from error

    return handle


def rpc_error(refused: CallRefused) -> RpcError:
    """The same in the door's words."""
    return RpcError(GrpcStatus(refused.number), refused.message)


class _Counted:
    """A call that knows whether anything was written."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.written = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def write(self, message: bytes) -> None:
        self.written = True
        await self._call.write(message)

    async def write_raw(self, frames: bytes) -> None:
        self.written = True
        await self._call.write_raw(frames)
