"""The values that cross the face of the store."""

import ipaddress
from enum import Enum
from typing import NamedTuple

from razzo.storage._kernel import StoredMessage


class NewMessage(NamedTuple):
    """What append takes. `properties` encoded (razzo.protocol.properties); `born_host` packed: 4 or 16 address bytes,
    then the port as i32 big-endian, or empty when unknown; the kernel sets the IPv6 bits of sys_flag."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    sys_flag: int = 0
    flag: int = 0
    born_ms: int = 0
    born_host: bytes = b""
    reconsume_times: int = 0
    prepared_offset: int = 0


class AppendedRequests(NamedTuple):
    """What became of SendMessage requests: `answers[i]` is the finished SendMessageResponse, or None for a request that
    was left alone; `end` the log offset to wait for, `topics` those that got messages."""

    answers: list[bytes | None]
    end: int
    topics: set[str]


class Appended(NamedTuple):
    """Where a message went. queue_offset is 0 for prepared and rollback records, which no queue holds."""

    queue_offset: int
    physical_offset: int
    size: int
    store_ms: int


class ReadStatus(Enum):
    """Outcomes of a read, named as RocketMQ's GetMessageStatus (3.8)."""

    FOUND = "found"
    NO_MATCHED_MESSAGE = "all filtered out"
    MESSAGE_WAS_REMOVING = "records below the start of the log"
    OFFSET_FOUND_NULL = "queue file missing"
    OFFSET_OVERFLOW_BADLY = "offset above the end"
    OFFSET_OVERFLOW_ONE = "offset at the end"
    OFFSET_TOO_SMALL = "offset below the beginning"
    NO_MATCHED_LOGIC_QUEUE = "no such queue"
    NO_MESSAGE_IN_QUEUE = "queue is empty"


class ReadResult(NamedTuple):
    """`next_offset`: where to read on. `removed`: units in between whose record is gone."""

    status: ReadStatus
    next_offset: int
    messages: list[StoredMessage]
    removed: int = 0


def pack_host(host: str, port: int) -> bytes:
    """Address bytes (4 or 16), then the port as i32 big-endian. ValueError for what is no IP address."""
    return ipaddress.ip_address(host).packed + port.to_bytes(4, "big")


def offset_message_id(host: bytes, physical_offset: int) -> str:
    """Packed host and physical offset as upper-case hex: 32 characters for IPv4, 56 for IPv6 (16.2)."""
    return (host + physical_offset.to_bytes(8, "big")).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """(ip, port, physical offset). ValueError for anything that is no offset message id."""
    if len(text) not in (32, 56):
        raise ValueError(f"an offset message id has 32 or 56 hex digits, not {len(text)}")
    raw = bytes.fromhex(text)
    address = ipaddress.ip_address(raw[:-12])
    return str(address), int.from_bytes(raw[-12:-8], "big"), int.from_bytes(raw[-8:], "big")
