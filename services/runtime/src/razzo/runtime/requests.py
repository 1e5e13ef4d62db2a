"""What every call says of its caller, read from the metadata (names and rules: RocketMQ's gRPC clients).

Only ``x-mq-client-id`` identifies a client: connections and peer addresses are shared and change. Everything else is
optional, and unknown languages are accepted (Node says ``HTTP``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.limits import ACK_ENTRIES_MAX, CLIENT_ID_BYTES_MAX
from razzo.protocol.names import check_group, check_topic, qualified

CLIENT_ID = "x-mq-client-id"
REQUEST_ID = "x-mq-request-id"
NAMESPACE = "x-mq-namespace"
LANGUAGE = "x-mq-language"
CLIENT_VERSION = "x-mq-client-version"
FORWARDED = "x-razzo-forwarded"
"""Set by the node that forwards; a call that carries it is never forwarded again."""
FORWARDED_PEER = "x-razzo-peer"
"""The client's own address on a forwarded call, written as `CallInfo.peer` writes it."""

UTF8_CHARACTER_BYTES_MAX = 4

_request_numbers = itertools.count(1)


class CallInfo(Protocol):
    """What is read of a call; `razzo.door` calls and peer calls both fit."""

    @property
    def path(self) -> str: ...

    @property
    def peer(self) -> str: ...

    @property
    def secure(self) -> bool: ...

    def metadata(self) -> Sequence[tuple[str, str | bytes]]: ...

    def header(self, key: str) -> str | None: ...

    def time_remaining(self) -> float | None: ...


class Caller(NamedTuple):
    """Who calls."""

    client_id: str
    namespace: str
    """Of header ``x-mq-namespace``; a Resource's own namespace goes before it."""
    language: str
    version: str
    peer: str
    """The client's address, also when another node forwarded the call."""
    secure: bool
    forwarded: bool


def client_id_of(call: CallInfo) -> str:
    """The client id. RequestRefused (40017) when it is absent or blank."""
    client_id = (call.header(CLIENT_ID) or "").strip()
    if not client_id:
        raise RequestRefused(Code.CLIENT_ID_REQUIRED, f"the metadata {CLIENT_ID} is absent or blank")
    if len(client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise RequestRefused(Code.BAD_REQUEST, f"the metadata {CLIENT_ID} is longer than {CLIENT_ID_BYTES_MAX} bytes")
    return client_id


def is_plain(call: CallInfo) -> bool:
    """Whether a call is plainly in order and of the default namespace, so that a fast path may take it; one that is not
    may be in order as well (`client_id_of` tells)."""
    client_id = call.header(CLIENT_ID)
    if not client_id or len(client_id) > CLIENT_ID_BYTES_MAX // UTF8_CHARACTER_BYTES_MAX or client_id.isspace():
        return False
    return not call.header(NAMESPACE)


def caller_of(call: CallInfo) -> Caller:
    """All of it. RequestRefused (40017) without a client id."""
    return Caller(
        client_id_of(call),
        namespace_of(call),
        call.header(LANGUAGE) or "",
        call.header(CLIENT_VERSION) or "",
        peer_of(call),
        call.secure,
        is_forwarded(call),
    )


def namespace_of(call: CallInfo) -> str:
    return call.header(NAMESPACE) or ""


def request_id_of(call: CallInfo) -> str:
    """The client's request id, or one of ours: Rust and C++ send none."""
    return call.header(REQUEST_ID) or f"razzo-{next(_request_numbers)}"


def is_forwarded(call: CallInfo) -> bool:
    return call.header(FORWARDED) is not None


def peer_of(call: CallInfo) -> str:
    """The client's address as gRPC writes it (``ipv4:10.0.0.1:40000``), through a forwarding node too."""
    if is_forwarded(call):
        return call.header(FORWARDED_PEER) or call.peer
    return call.peer


def peer_host_port(peer: str) -> tuple[str, int]:
    """Host and port of a peer written by gRPC; ("", 0) for one that has none (a Unix socket)."""
    scheme, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if scheme not in ("ipv4", "ipv6") or not port.isdigit():
        return "", 0
    return host.strip("[]"), int(port)


def effective_name(resource: definition_pb2.Resource, namespace: str) -> str:
    """The name under which a topic or group is kept: the resource's own namespace, else the header's, else none."""
    return qualified(resource.resource_namespace or namespace, resource.name)


def ack_names(ack: service_pb2.AckMessageRequest, namespace: str) -> tuple[str, str]:
    """Effective names of an ack's group and topic, after what any node refuses of it without looking at its handles."""
    if not 0 < len(ack.entries) <= ACK_ENTRIES_MAX:
        raise RequestRefused(Code.BAD_REQUEST, f"{len(ack.entries)} entries, must be 1 to {ACK_ENTRIES_MAX}")
    return names_of(ack.group, ack.topic, namespace)


def names_of(group: definition_pb2.Resource, topic: definition_pb2.Resource, namespace: str) -> tuple[str, str]:
    """Effective names of group and topic, checked for what no name can be."""
    group_name, topic_name = effective_name(group, namespace), effective_name(topic, namespace)
    check_group(group_name)
    check_topic(topic_name)
    return group_name, topic_name
