"""The method table: what a service offers on a client port, independent of the server that mounts it.

A service builds one `MethodTable` and hands it to a server (`razzo.door.native` or `razzo.door.grpcio_mount`). Handlers
take and give the bytes of protobuf messages, never message objects, so a hot handler can go from request bytes to log
bytes without building Python objects.

Four kinds of handler:

=================  ==================================================  ==========================================
kind               handler                                             used for
=================  ==================================================  ==========================================
``unary_batch``    ``handler(calls: list[BatchCall]) -> None``, sync   SendMessage, AckMessage: all calls that one
                                                                       socket read completed, answered now or later
``unary``          ``async handler(request: bytes, call) -> bytes``    everything unary that is not hot
``server_stream``  ``async handler(request: bytes, call) -> None``,    ReceiveMessage, PullMessage
                   answers through ``call.write``
``bidi``           ``async handler(call) -> None``, requests by        Telemetry
                   ``async for``, answers through ``call.write``
=================  ==================================================  ==========================================

An exception of type `RpcError` ends the call with its gRPC status; any other exception ends it with INTERNAL and a text
that names no internals. Business errors are not gRPC errors: they travel as a Status inside an ordinary answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
"""Pairs of lower-case key and value, in the order they came; the value is bytes for keys that end in ``-bin``."""


class GrpcStatus(Enum):
    """gRPC status codes by number (https://grpc.github.io/grpc/core/md_doc_statuscodes.html)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """Ends the call it is raised in with this gRPC status; the message is sent to the peer as it is."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message


class CallInfo(Protocol):
    """What every call knows of itself."""

    @property
    def path(self) -> str:
        """``/package.Service/Method``."""

    @property
    def peer(self) -> str:
        """The other end, as gRPC writes it: ``ipv4:10.0.0.1:40000`` or ``ipv6:[::1]:40000``."""

    @property
    def secure(self) -> bool:
        """True when the call came over TLS."""

    def metadata(self) -> Metadata:
        """The request's metadata, without the ``grpc-`` and HTTP/2 pseudo headers."""

    def header(self, key: str) -> str | None:
        """The first value of a text header, or None."""

    def time_remaining(self) -> float | None:
        """Seconds until the call's deadline, or None when the client set none."""


class BatchCall(CallInfo, Protocol):
    """One unary call of a batch. Exactly one of `answer` and `fail` is called, once, now or later, on the loop's
    thread.

    A call whose client has gone is answered like any other; the answer is dropped.
    """

    @property
    def request(self) -> bytes: ...

    def answer(self, response: bytes) -> None: ...

    def fail(self, status: GrpcStatus, message: str) -> None: ...


class Call(CallInfo, Protocol):
    """A call served by a coroutine. The coroutine is cancelled when the client cancels, resets, or is lost, and when
    the deadline passes."""

    async def send_initial_metadata(self, metadata: Metadata = ()) -> None:
        """Sends response headers at once; without it they leave with the first message."""

    def set_trailing_metadata(self, metadata: Metadata) -> None: ...

    async def write(self, message: bytes) -> None:
        """Sends one message; waits while the client reads too slowly."""

    async def write_raw(self, frames: bytes) -> None:
        """Sends several messages that are already framed (flag byte, four bytes of length, message; repeated)."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The client's messages (``bidi`` only), until it half-closes."""


UnaryBatchHandler: TypeAlias = Callable[[list[BatchCall]], None]
UnaryHandler: TypeAlias = Callable[[bytes, Call], Awaitable[bytes]]
StreamHandler: TypeAlias = Callable[[bytes, Call], Awaitable[None]]
BidiHandler: TypeAlias = Callable[[Call], Awaitable[None]]


class Kind(Enum):
    UNARY_BATCH = "unary_batch"
    UNARY = "unary"
    SERVER_STREAM = "server_stream"
    BIDI = "bidi"


@dataclass(frozen=True, slots=True)
class Method:
    path: str
    kind: Kind
    handler: UnaryBatchHandler | UnaryHandler | StreamHandler | BidiHandler


class MethodTable:
    """Paths and their handlers. Registering a path twice is a ValueError."""

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}

    def unary_batch(self, path: str, handler: UnaryBatchHandler) -> None:
        self._add(Method(path, Kind.UNARY_BATCH, handler))

    def unary(self, path: str, handler: UnaryHandler) -> None:
        self._add(Method(path, Kind.UNARY, handler))

    def server_stream(self, path: str, handler: StreamHandler) -> None:
        self._add(Method(path, Kind.SERVER_STREAM, handler))

    def bidi(self, path: str, handler: BidiHandler) -> None:
        self._add(Method(path, Kind.BIDI, handler))

    def merged(self, other: MethodTable) -> MethodTable:
        """A table with the methods of both."""
        table = MethodTable()
        for method in (*self, *other):
            table._add(method)
        return table

    def find(self, path: str) -> Method | None:
        return self._methods.get(path)

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())

    def __len__(self) -> int:
        return len(self._methods)

    def _add(self, method: Method) -> None:
        if not method.path.startswith("/") or method.path.count("/") != 2:
            raise ValueError(f"a method path is /package.Service/Method, not {method.path!r}")
        if method.path in self._methods:
            raise ValueError(f"{method.path} is registered twice")
        self._methods[method.path] = method


def answer_many(calls: list[BatchCall], responses: list[bytes]) -> None:
    """Answers `calls[i]` with `responses[i]`, all at once where the server of the calls can do that."""
    if not calls:
        return
    at_once = getattr(type(calls[0]), "answer_many", None)
    if at_once is not None:
        at_once(calls, responses)
        return
    for call, response in zip(calls, responses, strict=True):
        call.answer(response)
