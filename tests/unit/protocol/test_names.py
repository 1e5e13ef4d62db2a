"""What may be a name, as tables: each bad example with the code it is refused with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from razzo.protocol import limits, names, properties
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused

Check = Callable[[str], None]


def refusal(check: Callable[..., None], *arguments: str) -> Code | None:
    """The code `check` refuses with, None when it does not."""
    try:
        check(*arguments)
    except RequestRefused as refused:
        return refused.code if refused.message else None
    return None


GOOD: list[tuple[Check, str]] = [
    (names.check_topic, "orders"),
    (names.check_topic, "Orders_2-x|y"),
    (names.check_topic, "ns%orders"),
    (names.check_topic, "a" * 127),
    (names.check_topic, "%RETRY%" + "g" * 120),
    (names.check_topic, "%DLQ%g"),
    (names.check_topic, "%DLQ%" + "g" * 250),
    (names.check_topic, "TBW102x"),
    (names.check_group, "g"),
    (names.check_group, "g" * 120),
    (names.check_group, "ns%group_1-2"),
    (names.check_tag, "tag"),
    (names.check_tag, "tag with spaces and ünïcode 标签"),
    (names.check_key, "key"),
    (names.check_key, "key with spaces"),
    (names.check_message_group, "order-1001"),
    (names.check_message_group, "é" * 31 + "x"),
    (names.check_lite_topic, "chat-01_x"),
    (names.check_lite_topic, "c" * 64),
    (names.check_message_id, "0102FC000000014FD10B11B56100000000"),
    (names.check_message_id, "x" * 255),
]

BAD: list[tuple[Check, str, Code]] = [
    (names.check_topic, "", Code.ILLEGAL_TOPIC),
    (names.check_topic, "  ", Code.ILLEGAL_TOPIC),
    (names.check_topic, "a" * 128, Code.ILLEGAL_TOPIC),
    (names.check_topic, "%DLQ%" + "g" * 251, Code.ILLEGAL_TOPIC),
    (names.check_topic, "with space", Code.ILLEGAL_TOPIC),
    (names.check_topic, "dot.ted", Code.ILLEGAL_TOPIC),
    (names.check_topic, "../up", Code.ILLEGAL_TOPIC),
    (names.check_topic, "a/b", Code.ILLEGAL_TOPIC),
    (names.check_topic, "nul\x00", Code.ILLEGAL_TOPIC),
    (names.check_topic, "ünïcode", Code.ILLEGAL_TOPIC),
    (names.check_topic, "line\n", Code.ILLEGAL_TOPIC),
    (names.check_topic, "٣", Code.ILLEGAL_TOPIC),  # a digit, but not an ASCII one
    (names.check_topic, "%RETRY%g+t", Code.ILLEGAL_TOPIC),
    (names.check_topic, "SCHEDULE_TOPIC_XXXX", Code.ILLEGAL_TOPIC),
    (names.check_topic, "TBW102", Code.ILLEGAL_TOPIC),
    (names.check_topic, "RMQ_SYS_TRANS_HALF_TOPIC", Code.ILLEGAL_TOPIC),
    (names.check_topic, "rmq_sys_wheel_timer", Code.ILLEGAL_TOPIC),
    (names.check_topic, "rmq_sys_razzo_state", Code.ILLEGAL_TOPIC),
    (names.check_topic, "rmq_sys_anything", Code.ILLEGAL_TOPIC),
    (names.check_group, "", Code.ILLEGAL_CONSUMER_GROUP),
    (names.check_group, "g" * 121, Code.ILLEGAL_CONSUMER_GROUP),
    (names.check_group, "g g", Code.ILLEGAL_CONSUMER_GROUP),
    (names.check_group, "g\n", Code.ILLEGAL_CONSUMER_GROUP),
    (names.check_tag, "", Code.ILLEGAL_MESSAGE_TAG),
    (names.check_tag, " \t ", Code.ILLEGAL_MESSAGE_TAG),
    (names.check_tag, "a|b", Code.ILLEGAL_MESSAGE_TAG),
    (names.check_tag, "a\x01b", Code.ILLEGAL_MESSAGE_TAG),
    (names.check_tag, "a\x7f", Code.ILLEGAL_MESSAGE_TAG),
    (names.check_tag, "a\x85", Code.ILLEGAL_MESSAGE_TAG),
    (names.check_key, "", Code.ILLEGAL_MESSAGE_KEY),
    (names.check_key, "   ", Code.ILLEGAL_MESSAGE_KEY),
    (names.check_key, "a\nb", Code.ILLEGAL_MESSAGE_KEY),
    (names.check_message_group, "", Code.ILLEGAL_MESSAGE_GROUP),
    (names.check_message_group, "  ", Code.ILLEGAL_MESSAGE_GROUP),
    (names.check_message_group, "x" * 64, Code.ILLEGAL_MESSAGE_GROUP),
    (names.check_message_group, "é" * 32, Code.ILLEGAL_MESSAGE_GROUP),
    (names.check_message_group, "a\x02", Code.ILLEGAL_MESSAGE_GROUP),
    (names.check_lite_topic, "", Code.ILLEGAL_LITE_TOPIC),
    (names.check_lite_topic, "c" * 65, Code.ILLEGAL_LITE_TOPIC),
    (names.check_lite_topic, "a%b", Code.ILLEGAL_LITE_TOPIC),
    (names.check_lite_topic, "a|b", Code.ILLEGAL_LITE_TOPIC),
    (names.check_message_id, "", Code.ILLEGAL_MESSAGE_ID),
    (names.check_message_id, "  ", Code.ILLEGAL_MESSAGE_ID),
    (names.check_message_id, "x" * 256, Code.ILLEGAL_MESSAGE_ID),
    (names.check_message_id, "a\x00", Code.ILLEGAL_MESSAGE_ID),
]


@pytest.mark.parametrize(("check", "name"), GOOD, ids=lambda value: getattr(value, "__name__", None))
def test_accepted(check: Check, name: str) -> None:
    assert refusal(check, name) is None


@pytest.mark.parametrize(("check", "name", "code"), BAD, ids=lambda value: getattr(value, "__name__", None))
def test_refused(check: Check, name: str, code: Code) -> None:
    assert refusal(check, name) is code


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("k", "v", None),
        ("k", "", None),
        ("spaces in it", "ünï 值 😄", None),
        ("keys", "v", None),
        ("", "v", Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (" ", "v", Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ("a\x01", "v", Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ("a", "v\x02", Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ("a", "line\nbreak", Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ("__RMQ.TRANSIENT.x", "v", Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        *((key, "v", Code.ILLEGAL_MESSAGE_PROPERTY_KEY) for key in sorted(properties.RESERVED)),
    ],
)
def test_properties(key: str, value: str, code: Code | None) -> None:
    assert refusal(names.check_property, key, value) is code


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("region", "eu", True),
        ("a.b-c_D9", "", True),
        ("k" * 64, "v" * 256, True),
        ("k" * 65, "v", False),
        ("9k", "v", False),
        ("", "v", False),
        ("a b", "v", False),
        ("a\n", "v", False),
        ("rocketmq.region", "v", False),
        ("rocketmq", "v", True),
        ("k", "v" * 257, False),
    ],
)
def test_client_property(key: str, value: str, accepted: bool) -> None:
    expected = None if accepted else Code.INVALID_CLIENT_PROPERTIES
    assert refusal(names.check_client_property, key, value) is expected


def test_client_properties_together() -> None:
    many = [(f"k{i}", "v") for i in range(limits.CLIENT_PROPERTY_COUNT_MAX)]
    names.check_client_properties(many)
    with pytest.raises(RequestRefused):
        names.check_client_properties([*many, ("one-more", "v")])
    with pytest.raises(RequestRefused):
        names.check_client_properties([(f"k{i}", "v" * 256) for i in range(16)])


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [
        ("", "orders", "orders"),
        ("ns", "orders", "ns%orders"),
        ("ns", "%RETRY%group", "%RETRY%ns%group"),
        ("ns", "%DLQ%group", "%DLQ%ns%group"),
        ("", "%DLQ%group", "%DLQ%group"),
        ("ns", "rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("ns", "TBW102", "TBW102"),
    ],
)
def test_qualified(namespace: str, name: str, expected: str) -> None:
    assert names.qualified(namespace, name) == expected


def test_derived_topics_of_a_namespace_agree() -> None:
    """A client of a namespace that names its dead letter topic means the topic the broker writes to."""
    group = names.qualified("ns", "group")
    assert names.qualified("ns", "%DLQ%group") == names.dead_letter_topic(group)
    assert names.qualified("ns", "%RETRY%group") == names.retry_topic(group)
    assert names.is_dead_letter_topic(names.dead_letter_topic(group))
    assert names.is_retry_topic(names.retry_topic(group))
    assert not names.is_retry_topic(names.dead_letter_topic(group))


def test_derived_topics_of_the_longest_group_are_legal() -> None:
    group = "g" * limits.GROUP_CHARS_MAX
    names.check_topic(names.retry_topic(group))
    names.check_topic(names.dead_letter_topic(group))


def test_has_control_character_agrees_with_the_definition() -> None:
    controls = {chr(i) for i in [*range(0x20), *range(0x7F, 0xA0)]}
    found = {chr(i) for i in range(0x3000) if names.has_control_character(f"a{chr(i)}b")}
    assert found == controls
