"""Written words against generated ones: codes, method paths, errors."""

from __future__ import annotations

import pickle

import pytest

from apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2
from razzo.protocol import codes, methods
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RazzoError, RequestRefused
from razzo.v1 import admin_pb2 as razzo_admin_pb2
from razzo.v1 import registry_pb2


def test_code_equals_the_generated_enum() -> None:
    assert {code.name: code.value for code in Code} == dict(definition_pb2.Code.items())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], Code.OK),
        ([Code.OK], Code.OK),
        ([Code.ILLEGAL_TOPIC, Code.ILLEGAL_TOPIC], Code.ILLEGAL_TOPIC),
        ([Code.OK, Code.INVALID_RECEIPT_HANDLE], Code.MULTIPLE_RESULTS),
    ],
)
def test_merged(given: list[Code], expected: Code) -> None:
    assert codes.merged(given) is expected


def test_whose_fault() -> None:
    callers = {code for code in Code if codes.is_callers_fault(code)}
    assert callers >= {Code.BAD_REQUEST, Code.TOPIC_NOT_FOUND, Code.MESSAGE_PROPERTIES_TOO_LARGE}
    assert not callers & {Code.OK, Code.MULTIPLE_RESULTS, Code.INTERNAL_SERVER_ERROR, Code.FAILED_TO_CONSUME_MESSAGE}
    assert not callers & codes.STORED_BUT_LESS_SAFE


SERVICES = [
    service_pb2.DESCRIPTOR.services_by_name["MessagingService"],
    admin_pb2.DESCRIPTOR.services_by_name["Admin"],
    registry_pb2.DESCRIPTOR.services_by_name["Registry"],
    razzo_admin_pb2.DESCRIPTOR.services_by_name["ClusterAdmin"],
]


def constants() -> dict[str, str]:
    """The path constants, those of the public health service left out."""
    return {
        name: value
        for name, value in vars(methods).items()
        if name.isupper() and isinstance(value, str) and value.startswith(("/apache.", "/razzo."))
    }


def test_every_rpc_has_its_path() -> None:
    expected = {f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods}
    found = list(constants().values())
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert {methods.HEALTH_CHECK, methods.HEALTH_WATCH} == {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
    }


def test_constants_are_the_rpc_names_spelled_in_capitals() -> None:
    wrong = {
        name: path
        for name, path in constants().items()
        if not path.lower().endswith("/" + name.replace("_", "").lower())
    }
    assert wrong == {}


def test_streaming_sets_match_the_services() -> None:
    by_kind: dict[tuple[bool, bool], set[str]] = {}
    for service in SERVICES:
        for method in service.methods:
            kind = (method.client_streaming, method.server_streaming)
            by_kind.setdefault(kind, set()).add(f"/{service.full_name}/{method.name}")
    assert by_kind.pop((False, True)) | {methods.HEALTH_WATCH} == methods.SERVER_STREAMING
    assert by_kind.pop((True, True)) == methods.BIDI_STREAMING
    assert list(by_kind) == [(False, False)]


@pytest.mark.parametrize("kind", [RequestRefused, BrokerFault])
def test_errors_carry_code_and_message(kind: type[RazzoError]) -> None:
    error = kind(Code.ILLEGAL_TOPIC, "no such name")
    assert isinstance(error, RazzoError)
    assert (error.code, error.message, str(error)) == (Code.ILLEGAL_TOPIC, "no such name", "no such name")
    assert repr(error) == f"{kind.__name__}(ILLEGAL_TOPIC, 'no such name')"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.code, copy.message) == (error.code, error.message)
