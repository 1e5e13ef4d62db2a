"""Calls to a cluster: one channel, gRPC failures as exit codes. Imports grpc, so it is imported late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from razzo.cli.exits import CommandFailed, Exit

REPLY_S_MAX = 10.0
"""How long an admin call may take: the nameserver asks every broker and answers when all have done it."""

MESSAGE_BYTES_MAX = 64 << 20
"""The largest answer taken: a list of topics, or a batch of 32 messages of 4 MiB is refused above it."""

OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)

Request = TypeVar("Request")
Response = TypeVar("Response")

REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
    }
)


@contextmanager
def channel(address: str) -> Iterator[grpc.Channel]:
    """A channel to HOST:PORT, closed at the end."""
    opened = grpc.insecure_channel(address, options=OPTIONS)
    try:
        yield opened
    finally:
        opened.close()


def call(address: str, method: Callable[..., Response], request: Any, timeout_s: float = REPLY_S_MAX) -> Response:
    """The answer of a unary call. CommandFailed says who failed."""
    try:
        return method(request, timeout=timeout_s)
    except grpc.RpcError as failed:
        raise failure(address, failed, timeout_s) from None


def failure(address: str, failed: Any, timeout_s: float = REPLY_S_MAX) -> CommandFailed:
    """A gRPC error as an exit code and one line."""
    status, details = failed.code(), " ".join((failed.details() or "").split())
    if status in REFUSALS:
        return CommandFailed(Exit.REFUSED, details or status.name, status.name)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CommandFailed(
            Exit.UNREACHABLE, f"no answer from {address} within {timeout_s:g} s: it may or may not have taken effect"
        )
    if status is grpc.StatusCode.UNAVAILABLE:
        if details.startswith("failed to connect"):
            return CommandFailed(Exit.UNREACHABLE, f"nobody answers at {address}")
        return CommandFailed(Exit.UNREACHABLE, f"{address}: {details or status.name}")
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return CommandFailed(Exit.FAULT, f"{address} does not serve this: is it the client port of a Razzo nameserver?")
    return CommandFailed(Exit.FAULT, f"{address} failed: {details or status.name} ({status.name})")
