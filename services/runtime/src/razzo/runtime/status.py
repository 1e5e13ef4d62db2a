"""The one place where an exception becomes a Status (apache.rocketmq.v2.Status) or a gRPC status.

Business errors travel as a Status inside an ordinary answer: clients treat a gRPC error as a broken connection. Unknown
exceptions become 50001 with the request id, so that a user's report leads to the traceback in our log; their text stays
inside.
"""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import grpc

from apache.rocketmq.v2 import definition_pb2
from razzo.protocol.codes import Code, is_callers_fault
from razzo.protocol.errors import RazzoError
from razzo.runtime.logs import fields

log = logging.getLogger(__name__)

MESSAGE_CHARS_MAX = 1_000
"""Longest text of a Status; the rest is cut."""


class CallRefused(Exception):
    """Ends a call with a gRPC status, for the streams that have no Status of their own (Telemetry, registry, admin)."""

    def __init__(self, status: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message

    @property
    def number(self) -> int:
        """The status as gRPC numbers it on the wire."""
        return grpc_number(self.status)


class PeerFailed(RazzoError):
    """Another node did not answer, or answered with a gRPC error. `grpc_status` is what it was."""

    def __init__(self, grpc_status: grpc.StatusCode, message: str) -> None:
        super().__init__(_PEER_CODES.get(grpc_status, Code.INTERNAL_SERVER_ERROR), message)
        self.grpc_status = grpc_status


_PEER_CODES = {
    grpc.StatusCode.DEADLINE_EXCEEDED: Code.PROXY_TIMEOUT,
    grpc.StatusCode.CANCELLED: Code.PROXY_TIMEOUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Code.TOO_MANY_REQUESTS,
    grpc.StatusCode.UNIMPLEMENTED: Code.NOT_IMPLEMENTED,
    grpc.StatusCode.UNAUTHENTICATED: Code.UNAUTHORIZED,
    grpc.StatusCode.PERMISSION_DENIED: Code.UNAUTHORIZED,
}
"""Of a forwarded call, gRPC status to Status code; all others are 50001."""

_GRPC_STATUSES = {
    Code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.TOPIC_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.CONSUMER_GROUP_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.OFFSET_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.MESSAGE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    Code.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    Code.PRECONDITION_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    Code.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.NOT_IMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    Code.PROXY_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""Of a call without a Status (streams, razzo.v1), Status code to gRPC status; else INVALID_ARGUMENT for the caller's
faults and INTERNAL for ours."""


def status_of(error: BaseException, request_id: str = "") -> definition_pb2.Status:
    """The Status that tells a client of `error`. Logs what is unknown, with its traceback."""
    if isinstance(error, RazzoError):
        return status(error.code, error.message)
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return status(Code.PROXY_TIMEOUT, f"not in time (request {request_id})")
    log.error("request failed", extra=fields(request=request_id), exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, f"internal error (request {request_id})")


def status(code: Code, message: str) -> definition_pb2.Status:
    """A Status; a long text is cut."""
    return definition_pb2.Status(code=cast(definition_pb2.Code, int(code)), message=message[:MESSAGE_CHARS_MAX])


def ok() -> definition_pb2.Status:
    return status(Code.OK, "OK")


def refusal_of(error: BaseException, request_id: str = "") -> CallRefused:
    """The gRPC status that ends a call with `error`, where no Status can be answered."""
    if isinstance(error, CallRefused):
        return error
    if isinstance(error, PeerFailed):
        return CallRefused(error.grpc_status, error.message)
    if isinstance(error, RazzoError):
        fallback = grpc.StatusCode.INVALID_ARGUMENT if is_callers_fault(error.code) else grpc.StatusCode.INTERNAL
        return CallRefused(_GRPC_STATUSES.get(error.code, fallback), error.message[:MESSAGE_CHARS_MAX])
    return CallRefused(grpc.StatusCode.INTERNAL, status_of(error, request_id).message)


def grpc_number(status: grpc.StatusCode) -> int:
    number: int = status.value[0]
    return number


def grpc_status(number: int) -> grpc.StatusCode:
    """The status of a number on the wire; UNKNOWN for one that gRPC does not define."""
    return _BY_NUMBER.get(number, grpc.StatusCode.UNKNOWN)


_BY_NUMBER = {grpc_number(status): status for status in grpc.StatusCode}
