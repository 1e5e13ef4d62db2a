"""Commit-log records, the slow and obvious way (store-and-semantics.md 2.1-2.5, 15.1, 16.2).

Written from the notes alone and from none of razzo.storage: this is the oracle the kernel is held against. Nothing
here is fast, nothing is shared with the product, and every number of the format stands once, next to its meaning.
"""

import ipaddress
import struct
import zlib
from dataclasses import dataclass

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK_BYTES = 8
TOPIC_CHARS_V1_MAX = 127
SYS_BORN_V6 = 0x10
SYS_STORE_V6 = 0x20
SYS_TRANSACTION_MASK = 0xC
SYS_PREPARED = 0x4
SYS_COMMIT = 0x8
SYS_ROLLBACK = 0xC
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
CRC_KEY = b"__CRC32#\x01"
CRC_PROPERTY_BYTES = 20
DELAY_MS = [seconds * 1000 for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)]


class BadRecordError(Exception):
    """The bytes at this place are not a whole, sound record; the text says which check failed."""


@dataclass(frozen=True)
class Record:
    """One record as its fields. Hosts are packed: 4 or 16 address bytes and a port as i32."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    queue_offset: int
    physical_offset: int
    store_ms: int
    store_host: bytes
    sys_flag: int = 0
    flag: int = 0
    born_ms: int = 0
    born_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_offset: int = 0
    magic: int = MAGIC_V1
    size: int = 0


def pack_host(ip: str, port: int) -> bytes:
    return ipaddress.ip_address(ip).packed + struct.pack(">i", port)


def show_host(host: bytes) -> str:
    """ip:port, an IPv6 address in brackets."""
    ip, port = ipaddress.ip_address(host[:-4]), struct.unpack(">i", host[-4:])[0]
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def crc31(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFFFFFF


def java_hash(text: str) -> int:
    """Java's String.hashCode: UTF-16 units, wrapped to signed 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def encode_properties(pairs: dict[str, str]) -> bytes:
    return b"".join(key.encode() + b"\x01" + value.encode() + b"\x02" for key, value in pairs.items())


def decode_properties(raw: bytes) -> dict[str, str]:
    """An entry counts when its first 0x01 is neither its first nor its last byte; a missing last 0x02 is fine."""
    pairs = {}
    for entry in raw.split(b"\x02"):
        key, mark, value = entry.partition(b"\x01")
        if mark and key and value:
            pairs[key.decode()] = value.decode()
    return pairs


def transaction_type(sys_flag: int) -> int:
    return sys_flag & SYS_TRANSACTION_MASK


def gets_unit(sys_flag: int) -> bool:
    """Transaction type none or commit: prepared and rolled-back records get no queue offset and no unit."""
    return transaction_type(sys_flag) in (0, SYS_COMMIT)


def tag_code(record: Record) -> int:
    pairs = decode_properties(record.properties)
    if record.topic == SCHEDULE_TOPIC and "DELAY" in pairs:
        level = min(int(pairs["DELAY"]), len(DELAY_MS))
        if level > 0:
            return record.store_ms + DELAY_MS[level - 1]
    return java_hash(pairs["TAGS"]) if "TAGS" in pairs else 0


def index_keys(record: Record) -> list[str]:
    """The key strings a record is indexed under, in insertion order (4.2)."""
    if transaction_type(record.sys_flag) == SYS_ROLLBACK:
        return []
    pairs = decode_properties(record.properties)
    keys = [pairs["UNIQ_KEY"]] if "UNIQ_KEY" in pairs else []
    keys += [token for token in pairs.get("KEYS", "").split(" ") if token]
    return [f"{record.topic}#{key}" for key in keys]


def host_bits(born_host: bytes, store_host: bytes) -> int:
    return (SYS_BORN_V6 if len(born_host) == 20 else 0) | (SYS_STORE_V6 if len(store_host) == 20 else 0)


def encode(record: Record, crc_property: bool = False) -> bytes:
    """The record's bytes. Its sys_flag's IPv6 bits, magic and size are worked out here, whatever it carries."""
    topic = record.topic.encode()
    long_topic = len(record.topic) > TOPIC_CHARS_V1_MAX
    properties = record.properties
    if crc_property:
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        properties += bytes(CRC_PROPERTY_BYTES)
    sys_flag = record.sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6) | host_bits(record.born_host, record.store_host)
    body = record.body
    tail = b"".join(
        (
            struct.pack(">IiiqqIq", crc31(body), record.queue_id, record.flag, record.queue_offset,
                        record.physical_offset, sys_flag, record.born_ms),
            record.born_host,
            struct.pack(">q", record.store_ms),
            record.store_host,
            struct.pack(">iqi", record.reconsume_times, record.prepared_offset, len(body)),
            body,
            struct.pack(">H" if long_topic else ">B", len(topic)),
            topic,
            struct.pack(">h", len(properties)),
            properties,
        )
    )  # fmt: skip
    data = struct.pack(">iI", 8 + len(tail), MAGIC_V2 if long_topic else MAGIC_V1) + tail
    if not crc_property:
        return data
    digits = f"{crc31(data[:-CRC_PROPERTY_BYTES]):010d}"[::-1].encode()
    return data[:-CRC_PROPERTY_BYTES] + CRC_KEY + digits + b"\x02"


def blank(left: int) -> bytes:
    """The eight bytes that end a file with `left` bytes still unused."""
    return struct.pack(">iI", left, MAGIC_BLANK)


def is_blank(data: bytes, at: int) -> bool:
    return len(data) - at >= BLANK_BYTES and struct.unpack_from(">I", data, at + 4)[0] == MAGIC_BLANK


class _Cursor:
    def __init__(self, data: bytes, at: int):
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise BadRecordError(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> int:
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]


def decode(data: bytes, at: int) -> Record:
    """The record starting at byte `at` of one commit-log file; every length is checked against totalSize.

    Raises BadRecordError. The stored physical offset is returned, not compared: the caller knows the file's name.
    """
    cursor = _Cursor(data, at)
    size = cursor.number("i")
    magic = cursor.number("I")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise BadRecordError(f"magic {magic:08x}")
    if size < 91 or at + size > len(data):
        raise BadRecordError(f"size {size}")
    cursor.data = data[: at + size]
    body_crc = cursor.number("I")
    queue_id, flag = cursor.number("i"), cursor.number("i")
    queue_offset, physical_offset = cursor.number("q"), cursor.number("q")
    sys_flag = cursor.number("I")
    born_ms = cursor.number("q")
    born_host = cursor.take(20 if sys_flag & SYS_BORN_V6 else 8)
    store_ms = cursor.number("q")
    store_host = cursor.take(20 if sys_flag & SYS_STORE_V6 else 8)
    reconsume_times, prepared_offset = cursor.number("i"), cursor.number("q")
    body = cursor.take(cursor.number("i"))
    try:
        topic = cursor.take(cursor.number("h" if magic == MAGIC_V2 else "b")).decode()
    except UnicodeDecodeError as failure:
        raise BadRecordError(str(failure)) from failure
    properties = cursor.take(cursor.number("h"))
    if cursor.at != at + size:
        raise BadRecordError(f"fields end at {cursor.at}, the record at {at + size}")
    if body and crc31(body) != body_crc:
        raise BadRecordError("body CRC")
    return Record(topic, queue_id, body, properties, queue_offset, physical_offset, store_ms, store_host, sys_flag,
                  flag, born_ms, born_host, reconsume_times, prepared_offset, magic, size)  # fmt: skip


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    return (store_host + struct.pack(">q", physical_offset)).hex().upper()
