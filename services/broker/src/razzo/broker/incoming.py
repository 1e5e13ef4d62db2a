"""From a Message of the public API to a record: what is checked, with which code, and how it is stored.

Rules and codes: client-protocol.md 4.1, 4.3, 4.4; property names as RocketMQ's own gRPC server stores them, so that its
readers find tag, keys, message group and trace context where they expect them.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache

from apache.rocketmq.v2 import definition_pb2
from apache.rocketmq.v2.well_known import Timestamp
from razzo.broker.topics import Topic, TopicType
from razzo.protocol import limits, names, properties
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime.requests import peer_host_port
from razzo.storage import NewMessage

Encoding = definition_pb2.Encoding

SYS_FLAG_COMPRESSED = 0x1
# Bits 8 to 10 zero and bit 0 set is read as zlib; the clients' GZIP is marked like RocketMQ marks it.
SYS_FLAG_GZIP = SYS_FLAG_COMPRESSED
BORN_HOST_CHARS_MAX = 255
TIMESTAMP_MS_MAX = 253_402_300_799_999
"""End of the year 9999, the last moment a protobuf Timestamp may name."""

_UNSTORED = (
    (TopicType.LITE, "lite topics are"),
    (TopicType.PRIORITY, "priority messages are"),
    (TopicType.TRANSACTION, "transactional messages are"),
)


def to_record(message: definition_pb2.Message, topic: Topic, queue_id: int, peer: str, now_ms: int) -> NewMessage:
    """The record of a message that was checked before (`check`). `peer` is the client's address as gRPC writes it."""
    system = message.system_properties
    stored: dict[str, str] = {properties.UNIQ_KEY: system.message_id}
    if system.tag:
        stored[properties.TAGS] = system.tag
    if system.keys:
        stored[properties.KEYS] = properties.KEY_SEPARATOR.join(system.keys)
    if system.message_group:
        stored[properties.SHARDING_KEY] = system.message_group
    if system.trace_context:
        stored[properties.TRACE_CONTEXT] = system.trace_context
    if system.HasField("delivery_timestamp"):
        stored[properties.TIMER_OUT_MS] = str(_milliseconds(system.delivery_timestamp))
    if system.born_host:
        stored[properties.BORN_HOST] = system.born_host[:BORN_HOST_CHARS_MAX]
    stored.update(message.user_properties)
    born_ms = _milliseconds(system.born_timestamp) if system.HasField("born_timestamp") else now_ms
    return NewMessage(
        topic.name,
        queue_id,
        message.body,
        properties.encode_properties(stored),
        sys_flag=SYS_FLAG_GZIP if system.body_encoding == Encoding.GZIP else 0,
        born_ms=born_ms,
        born_host=packed_host(peer),
    )


def check(message: definition_pb2.Message, topic: Topic, now_ms: int) -> TopicType:
    """Refuses what the topic or the store cannot take; the message's type."""
    _check_body(message.body)
    system = message.system_properties
    names.check_message_id(system.message_id)
    _check_properties(message)
    kind = type_of(system)
    if not topic.accepts(kind):
        raise RequestRefused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the topic takes {topic.type.name} messages, this one is {kind.name}",
        )
    for unstored, what in _UNSTORED:
        if kind is unstored:
            raise RequestRefused(Code.NOT_IMPLEMENTED, f"{what} not served yet")
    if kind is TopicType.DELAY:
        _check_delivery_time(system, now_ms)
    return kind


def type_of(system: definition_pb2.SystemProperties) -> TopicType:
    """The type a message says it has. MESSAGE_PROPERTY_CONFLICT_WITH_TYPE when its fields say otherwise."""
    by_fields = TopicType.NORMAL
    if system.message_group:
        names.check_message_group(system.message_group)
        by_fields = TopicType.FIFO
    elif system.HasField("message_group"):
        names.check_message_group(system.message_group)
    elif system.HasField("lite_topic"):
        names.check_lite_topic(system.lite_topic)
        by_fields = TopicType.LITE
    elif system.HasField("delivery_timestamp"):
        by_fields = TopicType.DELAY
    elif system.HasField("priority"):
        by_fields = TopicType.PRIORITY
    said = system.message_type
    if said == definition_pb2.MESSAGE_TYPE_UNSPECIFIED:
        return by_fields
    if said == definition_pb2.TRANSACTION and by_fields is TopicType.NORMAL:
        return TopicType.TRANSACTION
    if int(said) != int(by_fields):
        name = definition_pb2.MessageType.Name(said) if said in definition_pb2.MessageType.values() else str(said)
        raise RequestRefused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message says it is {name}, its properties are those of a {by_fields.name} message",
        )
    return by_fields


def _check_body(body: bytes) -> None:
    if not body:
        raise RequestRefused(Code.MESSAGE_BODY_EMPTY, "the message body is empty")
    if len(body) > limits.MESSAGE_BODY_BYTES_MAX:
        raise RequestRefused(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"a message body has at most {limits.MESSAGE_BODY_BYTES_MAX} bytes, not {len(body)}",
        )


def _check_properties(message: definition_pb2.Message) -> None:
    system = message.system_properties
    size = 0
    if system.HasField("tag"):
        names.check_tag(system.tag)
        size += len(system.tag.encode())
    for key in system.keys:
        names.check_key(key)
        size += len(key.encode())
    user = message.user_properties
    if len(user) > limits.MESSAGE_PROPERTY_COUNT_MAX:
        raise RequestRefused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"a message has at most {limits.MESSAGE_PROPERTY_COUNT_MAX} properties, not {len(user)}",
        )
    for name, value in user.items():
        names.check_property(name, value)
        size += len(name.encode()) + len(value.encode())
    if size > limits.MESSAGE_PROPERTIES_BYTES_MAX:
        raise RequestRefused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have at most {limits.MESSAGE_PROPERTIES_BYTES_MAX} bytes, not {size}",
        )
    trace = len(system.trace_context.encode())
    if trace > limits.TRACE_CONTEXT_BYTES_MAX or names.has_control_character(system.trace_context):
        raise RequestRefused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"a trace context has at most {limits.TRACE_CONTEXT_BYTES_MAX} bytes and no control characters",
        )
    if names.has_control_character(system.born_host):
        raise RequestRefused(Code.BAD_REQUEST, "the born host contains a control character")
    if system.HasField("orphaned_transaction_recovery_duration"):
        wait_ms = system.orphaned_transaction_recovery_duration.ToMilliseconds()
        if not 0 <= wait_ms <= limits.TRANSACTION_RECOVERY_MS_MAX:
            raise RequestRefused(
                Code.BAD_REQUEST, f"the transaction recovery duration is {wait_ms} ms, at most one hour"
            )


def _check_delivery_time(system: definition_pb2.SystemProperties, now_ms: int) -> None:
    """A delivery time that has passed means now; later ones need the scheduler."""
    ahead_ms = _milliseconds(system.delivery_timestamp) - now_ms
    if ahead_ms > limits.DELIVERY_DELAY_MS_MAX:
        raise RequestRefused(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the delivery time is {ahead_ms} ms ahead, at most {limits.DELIVERY_DELAY_MS_MAX} ms",
        )
    if ahead_ms > 0:
        raise RequestRefused(Code.NOT_IMPLEMENTED, "delayed messages are not served yet")


def _milliseconds(timestamp: Timestamp) -> int:
    """Unix milliseconds, cut to what records and clients can hold."""
    return min(max(timestamp.seconds * 1_000 + timestamp.nanos // 1_000_000, 0), TIMESTAMP_MS_MAX)


@lru_cache(maxsize=4_096)
def packed_host(peer: str) -> bytes:
    """An address as records keep it: 4 or 16 bytes, then the port as i32 big endian. 0.0.0.0:0 for anything else."""
    host, port = peer_host_port(peer)
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        return bytes(8)
    return packed + struct.pack(">i", port)
