"""Razzo storage: one commit log in RocketMQ's format, and everything derived from it."""

from razzo.storage._kernel import AckWire, ReceiveWire, StoredMessage, siphash24, tag_hash
from razzo.storage.client_batches import expand_batch, inner_batch, unwrap
from razzo.storage.errors import (
    CorruptStore,
    DiskFull,
    MessageTooLarge,
    StoreClosed,
    StoreError,
    StoreLocked,
)
from razzo.storage.messages import (
    Appended,
    AppendedRequests,
    NewMessage,
    ReadResult,
    ReadStatus,
    offset_message_id,
    pack_host,
    parse_offset_message_id,
)
from razzo.storage.recovery import RecoveryReport
from razzo.storage.retention import RetentionReport
from razzo.storage.settings import FlushMode, StoreSettings
from razzo.storage.store import Store

__all__ = [
    "AckWire",
    "Appended",
    "AppendedRequests",
    "CorruptStore",
    "DiskFull",
    "FlushMode",
    "MessageTooLarge",
    "NewMessage",
    "ReadResult",
    "ReadStatus",
    "ReceiveWire",
    "RecoveryReport",
    "RetentionReport",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreLocked",
    "StoreSettings",
    "StoredMessage",
    "expand_batch",
    "inner_batch",
    "offset_message_id",
    "pack_host",
    "parse_offset_message_id",
    "siphash24",
    "tag_hash",
    "unwrap",
]
