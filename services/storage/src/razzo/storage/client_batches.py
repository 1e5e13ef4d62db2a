"""Batches of messages from classic clients (sections 2.6, 2.7): one body that holds many messages.

An item of such a body: `size i32 | magic i32 | crc i32 | flag i32 | body length i32, body | properties length i16,
properties`, big endian; size counts itself. Magic and crc are 0 from every client and mean nothing.
"""

import struct
from typing import NamedTuple

from razzo.protocol import properties
from razzo.storage._kernel import StoredMessage
from razzo.storage.messages import NewMessage

INNER_BATCH_FLAGS = 0xC0  # needs unwrap, inner batch
INNER_MESSAGES_MAX = 32_767
_TRANSACTION_BITS = 0xC
_COMPRESSED = 0x1
_HEAD = struct.Struct(">iiiii")
_PROPERTIES_LENGTH = struct.Struct(">h")
_ITEM_BYTES_MIN = _HEAD.size + _PROPERTIES_LENGTH.size
_RETRY_PREFIX = "%RETRY%"
# Of the whole batch, not of its messages.
_BATCH_PROPERTIES = frozenset({properties.INNER_NUM, properties.INNER_BASE, properties.CLUSTER})


class BatchItem(NamedTuple):
    """One message of a batch body; `properties` encoded."""

    flag: int
    body: bytes
    properties: bytes


def batch_items(body: bytes) -> list[BatchItem]:
    """The messages of a batch body, in order. ValueError when lengths do not fit, or there is none, or more than
    32,767."""
    items: list[BatchItem] = []
    at = 0
    while at < len(body):
        where = f"item {len(items)} of the batch at byte {at}"
        if len(body) - at < _ITEM_BYTES_MIN:
            raise ValueError(f"{where}: {len(body) - at} bytes are too few")
        size, _, _, flag, body_length = _HEAD.unpack_from(body, at)
        body_at = at + _HEAD.size
        properties_at = body_at + body_length + _PROPERTIES_LENGTH.size
        if body_length < 0 or properties_at > len(body):
            raise ValueError(f"{where}: a body of {body_length} bytes does not fit")
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(body, body_at + body_length)
        end = properties_at + properties_length
        if properties_length < 0 or end > len(body):
            raise ValueError(f"{where}: properties of {properties_length} bytes do not fit")
        if size != end - at:
            raise ValueError(f"{where}: says {size} bytes and has {end - at}")
        items.append(BatchItem(flag, body[body_at : body_at + body_length], body[properties_at:end]))
        if len(items) > INNER_MESSAGES_MAX:
            raise ValueError(f"the batch has more than {INNER_MESSAGES_MAX} messages")
        at = end
    if not items:
        raise ValueError("the batch has no message")
    return items


def expand_batch(batch: NewMessage) -> list[NewMessage]:
    """A client's batch as ordinary messages, to be appended in one call: topic, queue, flags and hosts of the batch,
    its properties behind the item's own. ValueError for a malformed body and for what cannot be sent in a batch:
    transactions, delays, compressed bodies, retry topics."""
    items = _sendable_items(batch)
    common = properties.encode_properties(
        {
            name: value
            for name, value in properties.decode_properties(batch.properties).items()
            if name not in _BATCH_PROPERTIES
        }
    )
    return [
        batch._replace(body=item.body, flag=item.flag, properties=_joined(item.properties, common)) for item in items
    ]


def inner_batch(batch: NewMessage) -> NewMessage:
    """A client's batch as the one record that a topic with queue.type=BatchCQ keeps: flags and INNER_NUM added.
    ValueError as for expand_batch, and without UNIQ_KEY."""
    items = _sendable_items(batch)
    names = properties.decode_properties(batch.properties)
    if properties.UNIQ_KEY not in names:
        raise ValueError("a batch that is kept as one record needs a UNIQ_KEY")
    names.pop(properties.INNER_BASE, None)
    names[properties.INNER_NUM] = str(len(items))
    encoded = properties.encode_properties(names)
    return batch._replace(sys_flag=batch.sys_flag | INNER_BATCH_FLAGS, properties=encoded)


def unwrap(message: StoredMessage) -> list[StoredMessage]:
    """The messages of a stored inner batch, each with its own queue offset, body, flag and properties; an ordinary
    message is alone. ValueError when the body is no batch of as many messages as the record says."""
    if not message.inner_count:
        return [message]
    items = batch_items(message.body)
    if len(items) != message.inner_count:
        raise ValueError(f"the batch has {len(items)} messages, its INNER_NUM is {message.inner_count}")
    return [message.inner(i, item.flag, item.body, item.properties) for i, item in enumerate(items)]


def _sendable_items(batch: NewMessage) -> list[BatchItem]:
    if batch.sys_flag & _TRANSACTION_BITS:
        raise ValueError("a batch has no part in transactions")
    if batch.sys_flag & _COMPRESSED:
        raise ValueError("a batch is not compressed")
    if batch.topic.startswith(_RETRY_PREFIX):
        raise ValueError("a batch does not go to a retry topic")
    items = batch_items(batch.body)
    for number, encoded in enumerate([batch.properties, *(item.properties for item in items)]):
        delay = properties.decode_properties(encoded).get(properties.DELAY_LEVEL, "0")
        if delay != "0":
            where = f"message {number - 1} of the batch" if number else "the batch"
            raise ValueError(f"{where} is delayed (level {delay}), and a batch is not")
    return items


def _joined(own: bytes, common: bytes) -> bytes:
    separator = b"\x02" if own and common and not own.endswith(b"\x02") else b""
    return own + separator + common
