"""From a stored record to a Message of the public API, and the frames of a receive stream.

Fields: client-protocol.md 5.3 and 5.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker.handles import Receipt, ReceiptHandles
from razzo.broker.incoming import SYS_FLAG_COMPRESSED
from razzo.protocol import properties
from razzo.protocol.codes import Code
from razzo.runtime.status import ok
from razzo.runtime.status import status as status_with
from razzo.storage import ReceiveWire, StoredMessage

MessageType = definition_pb2.MessageType
_PREFIX_BYTES = 5
_TIMER_PROPERTIES = (properties.TIMER_OUT_MS, properties.TIMER_DELIVER_MS, properties.DELAY_LEVEL)


class Delivered(NamedTuple):
    """A message handed out."""

    message: StoredMessage
    attempt: int
    pop_ms: int


HandedOut: TypeAlias = tuple[StoredMessage, int, int]
"""`Delivered`, or the same without the names: a tuple with names costs as much as the message's part of the answer."""


class Batch(NamedTuple):
    """What one receive hands out. `topic` is the Resource as the client named it."""

    topic: definition_pb2.Resource
    context: bytes
    delivered: list[HandedOut]
    invisible_ms: int
    now_ms: int


class ReceiveFrames:
    """Lays out the answers of receives that bring messages."""

    def __init__(self, handles: ReceiptHandles) -> None:
        self._handles = handles
        self._wire = ReceiveWire(
            handles.prefix,
            handles.secret,
            reserved_names=properties.RESERVED,
            reserved_prefixes=[properties.TRANSIENT_PREFIX],
        )

    def of(self, batch: Batch) -> bytes:
        """The whole answer, framed for gRPC: status, one element for each message, the delivery time. The kernel lays
        out the plain messages, `_element` the others, alike."""
        topic = batch.topic.SerializeToString()
        plain = self._wire.frames(topic, batch.context, batch.invisible_ms, batch.delivered)
        elements = (
            self._element(batch, each) if element is None else element
            for each, element in zip(batch.delivered, plain, strict=True)
        )
        return b"".join((_STATUS_OK_FRAME, *elements, _delivery_time(batch.now_ms)))

    def _element(self, batch: Batch, each: HandedOut) -> bytes:
        stored, attempt, pop_ms = each
        response = service_pb2.ReceiveMessageResponse()
        fill(response.message, stored, batch.topic)
        system = response.message.system_properties
        receipt = Receipt(stored.queue_id, stored.queue_offset, attempt, pop_ms)
        system.receipt_handle = self._handles.make(batch.context, receipt)
        system.invisible_duration.FromMilliseconds(batch.invisible_ms)
        system.delivery_attempt = attempt
        return _frame(response)


def empty_frames(status: definition_pb2.Status, now_ms: int) -> bytes:
    """An answer without messages."""
    return _frame(service_pb2.ReceiveMessageResponse(status=status)) + _delivery_time(now_ms)


def no_message_status() -> definition_pb2.Status:
    return status_with(Code.MESSAGE_NOT_FOUND, "no new message")


def pull_frames(topic: definition_pb2.Resource, messages: Sequence[StoredMessage], next_offset: int) -> bytes:
    """The answer of a pull: status, the messages, the offset to go on from."""
    status = ok() if messages else no_message_status()
    frames = [_frame(service_pb2.PullMessageResponse(status=status))]
    for stored in messages:
        response = service_pb2.PullMessageResponse()
        fill(response.message, stored, topic)
        response.message.system_properties.delivery_attempt = 1
        frames.append(_frame(response))
    frames.append(_frame(service_pb2.PullMessageResponse(next_offset=next_offset)))
    return b"".join(frames)


def refused_pull_frames(status: definition_pb2.Status) -> bytes:
    return _frame(service_pb2.PullMessageResponse(status=status))


def fill(message: definition_pb2.Message, stored: StoredMessage, topic: definition_pb2.Resource) -> None:
    """Everything of a message that does not depend on its delivery."""
    kept = stored.properties
    message.topic.CopyFrom(topic)
    message.body = stored.body
    for name, value in kept.items():
        if not properties.is_reserved(name):
            message.user_properties[name] = value
    system = message.system_properties
    system.message_id = message_id_of(stored)
    system.body_digest.type = definition_pb2.DigestType.MD5
    system.body_digest.checksum = hashlib.md5(stored.body, usedforsecurity=False).hexdigest().upper()
    compressed = stored.sys_flag & SYS_FLAG_COMPRESSED
    system.body_encoding = definition_pb2.Encoding.GZIP if compressed else definition_pb2.Encoding.IDENTITY
    system.message_type = _type_of(kept)
    system.born_timestamp.FromMilliseconds(stored.born_ms)
    system.born_host = kept.get(properties.BORN_HOST) or stored.born_host
    system.store_timestamp.FromMilliseconds(stored.store_ms)
    system.store_host = stored.store_host
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    if tag := kept.get(properties.TAGS):
        system.tag = tag
    if keys := kept.get(properties.KEYS):
        system.keys.extend(keys.split(properties.KEY_SEPARATOR))
    if message_group := kept.get(properties.SHARDING_KEY):
        system.message_group = message_group
    if trace_context := kept.get(properties.TRACE_CONTEXT):
        system.trace_context = trace_context
    deliver_ms = kept.get(properties.TIMER_OUT_MS) or kept.get(properties.TIMER_DELIVER_MS) or ""
    if deliver_ms.isdigit():
        system.delivery_timestamp.FromMilliseconds(int(deliver_ms))
    if origin := kept.get(properties.DLQ_ORIGIN_TOPIC):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = kept.get(properties.DLQ_ORIGIN_MESSAGE_ID, "")


def message_id_of(stored: StoredMessage) -> str:
    """The id its producer gave the message; a record without one is named by its place."""
    message_id: str = stored.properties.get(properties.UNIQ_KEY) or stored.offset_message_id
    return message_id


def _type_of(kept: dict[str, str]) -> definition_pb2.MessageType:
    if kept.get(properties.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if properties.SHARDING_KEY in kept:
        return MessageType.FIFO
    if any(name in kept for name in _TIMER_PROPERTIES):
        return MessageType.DELAY
    return MessageType.NORMAL


def _delivery_time(now_ms: int) -> bytes:
    response = service_pb2.ReceiveMessageResponse()
    response.delivery_timestamp.FromMilliseconds(now_ms)
    return _frame(response)


def _frame(response: service_pb2.ReceiveMessageResponse | service_pb2.PullMessageResponse) -> bytes:
    encoded = response.SerializeToString()
    return b"\0" + len(encoded).to_bytes(_PREFIX_BYTES - 1, "big") + encoded


_STATUS_OK_FRAME = _frame(service_pb2.ReceiveMessageResponse(status=ok()))
