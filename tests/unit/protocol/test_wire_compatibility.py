"""Our copy of RocketMQ's public API against the descriptors in the official Python package.

Everything the official package knows must be in ours with the same number, type and label. What is only in ours is
listed here: additions of newer revisions of the public API, and nothing else.
"""

from __future__ import annotations

import importlib

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FileDescriptor

from apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2

OFFICIAL = "rocketmq.grpc_protocol"

FILES = {"definition": definition_pb2.DESCRIPTOR, "service": service_pb2.DESCRIPTOR, "admin": admin_pb2.DESCRIPTOR}

# Newer than rocketmq-python-client 5.1.2 (apache/rocketmq-apis of 2026-07-30).
ADDITIONS = {
    "definition": {
        "apache.rocketmq.v2.Code.INVALID_CLIENT_PROPERTIES",
        "apache.rocketmq.v2.Settings.client_properties",
        "apache.rocketmq.v2.Settings.ClientPropertiesEntry",
        "apache.rocketmq.v2.Settings.ClientPropertiesEntry.key",
        "apache.rocketmq.v2.Settings.ClientPropertiesEntry.value",
    },
    "service": set(),
}

# The RPCs that Admin gained after its first, which is all the official package has.
ADMIN_ADDITIONS = {
    "DescribeTopicStatus",
    "ListSubscription",
    "DescribeSubscription",
    "DeleteSubscription",
    "DescribeGroupAccumulation",
    "ListConsumerConnection",
    "ResetGroupOffset",
    "QueryMessage",
    "PrintThreadStackTrace",
    "VerifyMessage",
    "AdminSendMessage",
    "GetConsumerRunningInfo",
    "GetTopicRoute",
    "QueryTimeSpan",
    "GetProxyRuntimeStats",
}


def official(name: str) -> FileDescriptor:
    module = importlib.import_module(f"{OFFICIAL}.{name}_pb2")
    descriptor = module.DESCRIPTOR
    assert isinstance(descriptor, FileDescriptor)
    return descriptor


def facts(file: FileDescriptor) -> dict[str, object]:
    """Everything of a file that shows on the wire or in paths, by full name."""
    found: dict[str, object] = {}
    for message in file.message_types_by_name.values():
        add_message(found, message)
    for enum in file.enum_types_by_name.values():
        add_enum(found, enum, enum.full_name)
    for service in file.services_by_name.values():
        for method in service.methods:
            found[f"{service.full_name}/{method.name}"] = (
                method.input_type.full_name,
                method.output_type.full_name,
                method.client_streaming,
                method.server_streaming,
            )
    return found


def add_message(found: dict[str, object], message: Descriptor) -> None:
    found[message.full_name] = "message"
    for field in message.fields:
        kind = field.message_type or field.enum_type
        found[field.full_name] = (
            field.number,
            field.type,
            field.is_repeated,
            field.is_packed,
            field.has_presence,
            kind.full_name if kind else "",
            field.containing_oneof.name if field.containing_oneof else "",
        )
    for nested in message.nested_types:
        add_message(found, nested)
    for enum in message.enum_types:
        add_enum(found, enum, enum.full_name)


def add_enum(found: dict[str, object], enum: EnumDescriptor, full_name: str) -> None:
    for value in enum.values:
        found[f"{full_name}.{value.name}"] = value.number


@pytest.mark.parametrize("name", ["definition", "service"])
def test_same_wire_format_as_the_official_package(name: str) -> None:
    ours, theirs = facts(FILES[name]), facts(official(name))
    assert len(theirs) > 50, "the official descriptors were not read"
    assert {key: ours.get(key) for key in theirs} == theirs
    assert set(ours) - set(theirs) == ADDITIONS[name]


def test_admin_is_the_official_one_and_the_named_additions() -> None:
    ours, theirs = facts(FILES["admin"]), facts(official("admin"))
    assert "apache.rocketmq.v2.Admin/ChangeLogLevel" in theirs
    assert {key: ours.get(key) for key in theirs} == theirs
    only_ours = {key.rpartition("/")[2] for key in ours if key.startswith("apache.rocketmq.v2.Admin/")}
    assert only_ours == ADMIN_ADDITIONS | {"ChangeLogLevel"}


def test_admin_calls_are_unary() -> None:
    service = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
    assert {method.name for method in service.methods if method.client_streaming or method.server_streaming} == set()


def test_streaming_flags() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
    streaming = {m.name: (m.client_streaming, m.server_streaming) for m in service.methods if m.server_streaming}
    assert streaming == {"ReceiveMessage": (False, True), "PullMessage": (False, True), "Telemetry": (True, True)}
    assert not [m.name for m in service.methods if m.client_streaming and not m.server_streaming]
