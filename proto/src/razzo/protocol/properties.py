"""RocketMQ's property names, and the bytes in which a record keeps its properties.

Format: `name 0x01 value 0x02`, repeated, UTF-8 (store-and-semantics.md 2.3). Servers before 5.2.0 left out the last
0x02, so readers do without it. Empty names and empty values do not exist in it: Java readers drop such entries.
"""

from collections.abc import Mapping

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "
"""Between the keys of one message in the KEYS property."""

# --- of the message itself
KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
"""The message id its producer made."""
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
SHARDING_KEY = "__SHARDINGKEY"
"""The message group of a FIFO message."""
TRACE_CONTEXT = "TRACE_CONTEXT"
MESSAGE_TYPE = "MSG_TYPE"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
PRODUCER_GROUP = "PGROUP"
WAIT = "WAIT"
BUYER_ID = "BUYER_ID"
INSTANCE_ID = "INSTANCE_ID"
PRIORITY = "_SYS_MSG_PRIORITY_"
LITE_TOPIC = "__LITE_TOPIC"

# --- of delayed messages
DELAY_LEVEL = "DELAY"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"

# --- of messages that wait under a system topic
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"

# --- of transactions
TRANSACTION_PREPARED = "TRAN_MSG"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"

# --- of retries and dead letters
RETRY_TOPIC = "RETRY_TOPIC"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
CONSUME_START_TIME = "CONSUME_START_TIME"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"

# --- of batches and dispatch to several queues
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
DUP_INFO = "DUP_INFO"

# --- of brokers
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
REDIRECT = "REDIRECT"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
CRC32 = "__CRC32#"

# --- of request and reply
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"

TRANSIENT_PREFIX = "__RMQ.TRANSIENT."
"""Properties of this prefix are never stored."""

RESERVED = frozenset(
    value
    for name, value in list(globals().items())
    if name.isupper()
    and isinstance(value, str)
    and name not in {"NAME_VALUE_SEPARATOR", "PROPERTY_SEPARATOR", "KEY_SEPARATOR", "TRANSIENT_PREFIX"}
)
"""Names an application cannot use: RocketMQ keeps its own data under them in the same map."""


def is_reserved(name: str) -> bool:
    """Whether a user property of this name would collide with RocketMQ's own."""
    return name in RESERVED or name.startswith(TRANSIENT_PREFIX)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The properties as a record keeps them, in the mapping's order, each with its terminator.

    Entries with an empty name or value are left out. Raises ValueError when a name or value contains one of the two
    separators (names.check_property refuses those of users before).
    """
    parts: list[str] = []
    for name, value in properties.items():
        if not name or not value:
            continue
        pair = name + value
        if NAME_VALUE_SEPARATOR in pair or PROPERTY_SEPARATOR in pair:
            raise ValueError(f"the property {name!r} contains a separator (0x01 or 0x02)")
        parts.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    return "".join(parts).encode()


def decode_properties(encoded: bytes) -> dict[str, str]:
    """The properties of a record, in stored order. The last one counts of several with one name.

    Never raises: as in RocketMQ's own reader, an entry without a name or a value is no property, the last terminator
    may be missing, a value may contain 0x01, and bytes that are not UTF-8 become U+FFFD.
    """
    properties: dict[str, str] = {}
    for entry in encoded.decode(errors="replace").split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties
