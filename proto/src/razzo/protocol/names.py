"""Names of topics, groups and what a message carries: how they are built, and which are refused with which code.

Rules: those of RocketMQ's server (client-protocol.md 4.4, store-and-semantics.md 2.9 and 14.4).
"""

import re
import unicodedata
from collections.abc import Iterable

from razzo.protocol import limits, properties
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
NAMESPACE_SEPARATOR = "%"
SYSTEM_PREFIX = "rmq_sys_"

STATE_TOPIC = "rmq_sys_razzo_state"
"""A broker's own settings, positions and leases (razzo/v1/state.proto)."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Delayed messages by level: queue = level - 1."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Messages delayed until a time."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Transactional messages that wait for their outcome."""
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The outcomes."""
TRANSACTION_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Transactional messages whose producers never knew."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TEMPLATE_TOPIC = "TBW102"
"""RocketMQ's template of topics made on the fly."""
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"

SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        TEMPLATE_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
    },
)

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_LITE_TOPIC = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
_CLIENT_PROPERTY_KEY = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]*", re.ASCII)
_RESERVED_CLIENT_PROPERTY_PREFIX = "rocketmq."


# --- building


def qualified(namespace: str, name: str) -> str:
    """The name a topic or group is stored under: `namespace%name`, or `name` without a namespace.

    As in RocketMQ, retry and dead letter topics keep their prefix in front (`%DLQ%namespace%group`), and system topics
    belong to no namespace.
    """
    if not namespace or is_system_topic(name):
        return name
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return f"{prefix}{namespace}{NAMESPACE_SEPARATOR}{name[len(prefix) :]}"
    return f"{namespace}{NAMESPACE_SEPARATOR}{name}"


def retry_topic(group: str) -> str:
    """Where messages of a consumer group wait for their next delivery; `group` is the stored name."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages go that a consumer group gave up; `group` is the stored name."""
    return DEAD_LETTER_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    return topic.startswith(DEAD_LETTER_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Whether the topic is the servers' own; clients neither send to it nor receive from it."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


# --- checking; each raises RequestRefused with the code of the public API


def check_topic(topic: str) -> None:
    """Refuses what no client may name as a topic (ILLEGAL_TOPIC), system topics included. Takes the stored name."""
    derived = is_retry_topic(topic) or is_dead_letter_topic(topic)
    chars_max = limits.DERIVED_TOPIC_CHARS_MAX if derived else limits.TOPIC_CHARS_MAX
    _check_name(topic, "topic", chars_max, Code.ILLEGAL_TOPIC)
    if is_system_topic(topic):
        raise RequestRefused(Code.ILLEGAL_TOPIC, f"the topic {topic!r} is reserved for the system")


def check_group(group: str) -> None:
    """Refuses what cannot be a consumer group (ILLEGAL_CONSUMER_GROUP). Takes the stored name."""
    _check_name(group, "consumer group", limits.GROUP_CHARS_MAX, Code.ILLEGAL_CONSUMER_GROUP)


def check_lite_topic(lite_topic: str) -> None:
    """Refuses what cannot be a lite topic (ILLEGAL_LITE_TOPIC)."""
    if not _LITE_TOPIC.fullmatch(lite_topic):
        raise RequestRefused(
            Code.ILLEGAL_LITE_TOPIC,
            f"a lite topic needs letters, digits, '_' and '-': {lite_topic[:80]!r}",
        )
    if len(lite_topic) > limits.LITE_TOPIC_BYTES_MAX:
        raise RequestRefused(
            Code.ILLEGAL_LITE_TOPIC,
            f"a lite topic has at most {limits.LITE_TOPIC_BYTES_MAX} bytes, not {len(lite_topic)}",
        )


def check_tag(tag: str) -> None:
    """Refuses a tag that is blank or holds a `|` (filters use it) or a control character (ILLEGAL_MESSAGE_TAG)."""
    _check_text(tag, "tag", Code.ILLEGAL_MESSAGE_TAG)
    if "|" in tag:
        raise RequestRefused(Code.ILLEGAL_MESSAGE_TAG, f"a tag must not contain '|': {tag[:80]!r}")


def check_key(key: str) -> None:
    """Refuses a message key that is blank or holds a control character (ILLEGAL_MESSAGE_KEY)."""
    _check_text(key, "key", Code.ILLEGAL_MESSAGE_KEY)


def check_message_group(message_group: str) -> None:
    """Refuses a message group that is blank, too long, or holds a control character (ILLEGAL_MESSAGE_GROUP)."""
    _check_text(message_group, "message group", Code.ILLEGAL_MESSAGE_GROUP)
    size = len(message_group.encode(errors="replace"))
    if size > limits.MESSAGE_GROUP_BYTES_MAX:
        raise RequestRefused(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"a message group has at most {limits.MESSAGE_GROUP_BYTES_MAX} bytes, not {size}",
        )


def check_message_id(message_id: str) -> None:
    """Refuses a message id that is blank, too long, or holds a control character (ILLEGAL_MESSAGE_ID)."""
    _check_text(message_id, "message id", Code.ILLEGAL_MESSAGE_ID)
    size = len(message_id.encode(errors="replace"))
    if size > limits.MESSAGE_ID_BYTES_MAX:
        raise RequestRefused(
            Code.ILLEGAL_MESSAGE_ID,
            f"a message id has at most {limits.MESSAGE_ID_BYTES_MAX} bytes, not {size}",
        )


def check_property(key: str, value: str) -> None:
    """Refuses a user property with a blank or reserved name, or a control character (ILLEGAL_MESSAGE_PROPERTY_KEY)."""
    _check_text(key, "property name", Code.ILLEGAL_MESSAGE_PROPERTY_KEY)
    if properties.is_reserved(key):
        raise RequestRefused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {key!r} is reserved")
    if has_control_character(value):
        raise RequestRefused(
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            f"the value of property {key!r} contains a control character",
        )


def check_client_property(key: str, value: str) -> None:
    """Refuses an entry of Settings.client_properties (INVALID_CLIENT_PROPERTIES)."""
    if len(key) > limits.CLIENT_PROPERTY_KEY_CHARS_MAX or not _CLIENT_PROPERTY_KEY.fullmatch(key):
        raise RequestRefused(
            Code.INVALID_CLIENT_PROPERTIES,
            f"a client property is named by a letter, then letters, digits, '_', '.', '-', "
            f"{limits.CLIENT_PROPERTY_KEY_CHARS_MAX} characters at most: {key[:80]!r}",
        )
    if key.startswith(_RESERVED_CLIENT_PROPERTY_PREFIX):
        raise RequestRefused(
            Code.INVALID_CLIENT_PROPERTIES,
            f"client properties named {_RESERVED_CLIENT_PROPERTY_PREFIX}… are reserved: {key!r}",
        )
    if len(value) > limits.CLIENT_PROPERTY_VALUE_CHARS_MAX:
        raise RequestRefused(
            Code.INVALID_CLIENT_PROPERTIES,
            f"the client property {key!r} has more than {limits.CLIENT_PROPERTY_VALUE_CHARS_MAX} characters",
        )


def check_client_properties(entries: Iterable[tuple[str, str]]) -> None:
    """Refuses client properties that are too many, too large together, or wrong one by one."""
    count = 0
    size = 0
    for key, value in entries:
        check_client_property(key, value)
        count += 1
        size += len(key.encode(errors="replace")) + len(value.encode(errors="replace"))
    if count > limits.CLIENT_PROPERTY_COUNT_MAX or size > limits.CLIENT_PROPERTIES_BYTES_MAX:
        raise RequestRefused(
            Code.INVALID_CLIENT_PROPERTIES,
            f"at most {limits.CLIENT_PROPERTY_COUNT_MAX} client properties of together "
            f"{limits.CLIENT_PROPERTIES_BYTES_MAX} bytes, not {count} of {size} bytes",
        )


def has_control_character(text: str) -> bool:
    """Whether any character is of Unicode category Cc (0x00-0x1f, 0x7f-0x9f)."""
    # isprintable() is false for every control character, and fast; category decides about the other unprintables.
    return not text.isprintable() and any(unicodedata.category(character) == "Cc" for character in text)


def _check_name(name: str, what: str, chars_max: int, code: Code) -> None:
    if not name.strip():
        raise RequestRefused(code, f"the {what} is blank")
    if len(name) > chars_max:
        raise RequestRefused(code, f"a {what} has at most {chars_max} characters, not {len(name)}")
    if not _NAME.fullmatch(name):
        raise RequestRefused(code, f"a {what} needs letters, digits, '_', '-', '%' and '|': {name[:80]!r}")


def _check_text(text: str, what: str, code: Code) -> None:
    if not text.strip():
        raise RequestRefused(code, f"the {what} is blank")
    if has_control_character(text):
        raise RequestRefused(code, f"the {what} contains a control character: {text[:80]!r}")
