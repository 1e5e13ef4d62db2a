"""Exceptions as statuses, and what a call says of its caller."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RequestRefused
from razzo.runtime.forwarding import carried_metadata, metadata_of, target
from razzo.runtime.requests import caller_of, client_id_of, effective_name, peer_host_port, peer_of, request_id_of
from razzo.runtime.status import MESSAGE_CHARS_MAX, CallRefused, PeerFailed, refusal_of, status_of

Grpc = grpc.StatusCode


class FakeCall:
    path, peer, secure = "/s/M", "ipv4:10.0.0.5:4000", False

    def __init__(self, *metadata: tuple[str, str | bytes]) -> None:
        self._metadata = metadata

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self._metadata

    def header(self, key: str) -> str | None:
        return next((value for name, value in self._metadata if name == key and isinstance(value, str)), None)

    def time_remaining(self) -> float | None:
        return 1.5


@pytest.mark.parametrize(
    ("error", "code", "grpc_status"),
    [
        (RequestRefused(Code.TOPIC_NOT_FOUND, "x"), Code.TOPIC_NOT_FOUND, Grpc.NOT_FOUND),
        (RequestRefused(Code.BAD_REQUEST, "x"), Code.BAD_REQUEST, Grpc.INVALID_ARGUMENT),
        (RequestRefused(Code.UNAUTHORIZED, "x"), Code.UNAUTHORIZED, Grpc.UNAUTHENTICATED),
        (RequestRefused(Code.FORBIDDEN, "x"), Code.FORBIDDEN, Grpc.PERMISSION_DENIED),
        (BrokerFault(Code.TOO_MANY_REQUESTS, "x"), Code.TOO_MANY_REQUESTS, Grpc.RESOURCE_EXHAUSTED),
        (BrokerFault(Code.HA_NOT_AVAILABLE, "x"), Code.HA_NOT_AVAILABLE, Grpc.INTERNAL),
        (PeerFailed(Grpc.UNAVAILABLE, "x"), Code.INTERNAL_SERVER_ERROR, Grpc.UNAVAILABLE),
        (PeerFailed(Grpc.DEADLINE_EXCEEDED, "x"), Code.PROXY_TIMEOUT, Grpc.DEADLINE_EXCEEDED),
        (PeerFailed(Grpc.RESOURCE_EXHAUSTED, "x"), Code.TOO_MANY_REQUESTS, Grpc.RESOURCE_EXHAUSTED),
        (PeerFailed(Grpc.UNIMPLEMENTED, "x"), Code.NOT_IMPLEMENTED, Grpc.UNIMPLEMENTED),
        (TimeoutError(), Code.PROXY_TIMEOUT, Grpc.INTERNAL),
        (ValueError("secret"), Code.INTERNAL_SERVER_ERROR, Grpc.INTERNAL),
    ],
)
def test_the_table(error: Exception, code: Code, grpc_status: grpc.StatusCode) -> None:
    status = status_of(error, "r1")
    assert status.code == code
    refused = refusal_of(error, "r1")
    assert refused.status is grpc_status
    assert refused.number == grpc_status.value[0]


def test_what_is_unknown_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status = status_of(ValueError("secret"), "request-7")
    assert "secret" not in status.message
    assert "request-7" in status.message
    assert caplog.records[0].exc_info is not None
    assert "ValueError: secret" in caplog.text


def test_long_texts_are_cut() -> None:
    status = status_of(RequestRefused(Code.BAD_REQUEST, "x" * 5_000))
    assert len(status.message) == MESSAGE_CHARS_MAX


def test_a_refusal_stays_what_it_is() -> None:
    refused = CallRefused(Grpc.ABORTED, "why")
    assert refusal_of(refused) is refused


@pytest.mark.parametrize("metadata", [(), (("x-mq-client-id", ""),), (("x-mq-client-id", " \t"),)])
def test_a_client_id_is_required(metadata: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(RequestRefused) as refused:
        client_id_of(FakeCall(*metadata))
    assert refused.value.code is Code.CLIENT_ID_REQUIRED


def test_a_client_id_has_a_length() -> None:
    assert client_id_of(FakeCall(("x-mq-client-id", "c" * 255))) == "c" * 255
    with pytest.raises(RequestRefused) as refused:
        client_id_of(FakeCall(("x-mq-client-id", "ü" * 128)))
    assert refused.value.code is Code.BAD_REQUEST


def test_any_language_is_accepted_and_nothing_else_is_needed() -> None:
    caller = caller_of(FakeCall(("x-mq-client-id", "c"), ("x-mq-language", "XYZ")))
    assert caller == ("c", "", "XYZ", "", "ipv4:10.0.0.5:4000", False, False)


def test_request_ids_are_the_clients_own_or_unique() -> None:
    assert request_id_of(FakeCall(("x-mq-request-id", "r"))) == "r"
    assert request_id_of(FakeCall()) != request_id_of(FakeCall())


@pytest.mark.parametrize(
    ("resource", "header", "name"),
    [
        (("", "t"), "", "t"),
        (("", "t"), "blue", "blue%t"),
        (("red", "t"), "blue", "red%t"),
        (("red", "t"), "", "red%t"),
    ],
)
def test_the_fields_namespace_goes_before_the_headers(resource: tuple[str, str], header: str, name: str) -> None:
    assert effective_name(definition_pb2.Resource(resource_namespace=resource[0], name=resource[1]), header) == name


@pytest.mark.parametrize(
    ("peer", "pair"),
    [
        ("ipv4:10.0.0.1:80", ("10.0.0.1", 80)),
        ("ipv6:[::1]:80", ("::1", 80)),
        ("ipv6:%5B::1%5D:80", ("::1", 80)),
        ("unix:/tmp/x", ("", 0)),
        ("ipv4:10.0.0.1", ("", 0)),
        ("", ("", 0)),
    ],
)
def test_peers(peer: str, pair: tuple[str, int]) -> None:
    assert peer_host_port(peer) == pair


def test_forwarded_metadata_is_the_clients_own_with_our_marks_only() -> None:
    call = FakeCall(
        ("x-mq-client-id", "c"),
        ("user-agent", "grpc-java"),
        ("grpc-timeout", "1S"),
        ("x-own-bin", b"\x00"),
        ("x-razzo-forwarded", "1"),
        ("x-razzo-peer", "ipv4:6.6.6.6:6"),
    )
    assert carried_metadata(call) == [
        ("x-mq-client-id", "c"),
        ("x-own-bin", b"\x00"),
        ("x-razzo-forwarded", "1"),
        ("x-razzo-peer", "ipv4:10.0.0.5:4000"),
    ]


def test_a_forwarded_call_is_of_the_client_and_not_of_the_node_that_forwards() -> None:
    first = FakeCall(("x-mq-client-id", "c"))
    second = FakeCall(*carried_metadata(first))
    second.peer = "ipv4:10.9.9.9:1"
    assert peer_of(second) == "ipv4:10.0.0.5:4000"
    assert caller_of(second).forwarded
    assert dict(metadata_of(caller_of(second)))["x-razzo-peer"] == "ipv4:10.0.0.5:4000"


@pytest.mark.parametrize(
    ("host", "written"), [("10.0.0.1", "10.0.0.1:1"), ("::1", "[::1]:1"), ("[::1]", "[::1]:1"), ("b-0.b", "b-0.b:1")]
)
def test_targets(host: str, written: str) -> None:
    assert target(host, 1) == written
