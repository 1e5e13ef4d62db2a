"""Property bytes: the cases of store-and-semantics.md 2.3 as a table, and the round trip of everything legal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from razzo.protocol import names, properties
from razzo.protocol.errors import RequestRefused
from razzo.protocol.properties import decode_properties, encode_properties

# encoded -> what RocketMQ's reader makes of it
DECODED: list[tuple[bytes, dict[str, str]]] = [
    (b"", {}),
    (b"KEYS\x01k1 k2\x02", {"KEYS": "k1 k2"}),
    (b"a\x01b\x02c\x01d\x02", {"a": "b", "c": "d"}),
    (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),  # as written before 5.2.0
    (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
    (b"a\x01\x02c\x01d\x02", {"c": "d"}),  # no value
    (b"\x01b\x02c\x01d\x02", {"c": "d"}),  # no name
    (b"nothing\x02c\x01d\x02", {"c": "d"}),
    (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
    (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
    ("名\x01值😄\x02".encode(), {"名": "值😄"}),
    (b"a\x01\xff\x02", {"a": "\ufffd"}),
    (b"__CRC32#\x010123456789\x02", {"__CRC32#": "0123456789"}),
]

ENCODED: list[tuple[dict[str, str], bytes]] = [
    ({}, b""),
    ({"KEYS": "k1 k2", "TAGS": "t"}, b"KEYS\x01k1 k2\x02TAGS\x01t\x02"),
    ({"b": "1", "a": "2"}, b"b\x011\x02a\x012\x02"),
    ({"": "v", "n": "", "a": "b"}, b"a\x01b\x02"),
    ({"名": "值"}, "名\x01值\x02".encode()),
]

DOCUMENTED = """
KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE DUP_INFO
CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__ TRANSACTION_CHECK_TIMES INSTANCE_ID
CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET
1ST_POP_TIME __SHARDINGKEY PROPERTY_FORWARD_QUEUE_ID REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET
TRACE_CONTEXT TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP __CRC32# DLQ_ORIGIN_TOPIC
DLQ_ORIGIN_MESSAGE_ID
"""

SEPARATORS = st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])
TEXT = st.text(SEPARATORS, min_size=1, max_size=20)


@pytest.mark.parametrize(("encoded", "expected"), DECODED)
def test_decode(encoded: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(encoded) == expected


@pytest.mark.parametrize(("given", "expected"), ENCODED)
def test_encode(given: dict[str, str], expected: bytes) -> None:
    assert encode_properties(given) == expected


@pytest.mark.parametrize("bad", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": "\x01"}, {"\x02a": "b"}])
def test_encode_refuses_separators(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="separator"):
        encode_properties(bad)


@given(st.dictionaries(TEXT, TEXT, max_size=12))
def test_round_trip(given: dict[str, str]) -> None:
    decoded = decode_properties(encode_properties(given))
    assert decoded == given
    assert list(decoded) == list(given)


@given(st.binary(max_size=200))
def test_decoding_never_fails_and_settles(encoded: bytes) -> None:
    """Whatever a record holds can be read; what was read without a stray 0x01 can be written and read again."""
    decoded = decode_properties(encoded)
    clean = {name: value for name, value in decoded.items() if "\x01" not in value}
    assert decode_properties(encode_properties(clean)) == clean


@given(TEXT, st.text(SEPARATORS, max_size=20))
def test_what_the_check_accepts_can_be_encoded(name: str, value: str) -> None:
    try:
        names.check_property(name, value)
    except RequestRefused:
        return
    assert decode_properties(encode_properties({name: value})) == ({name: value} if value else {})


def test_reserved_names_are_the_documented_ones() -> None:
    assert {*DOCUMENTED.split(), "__LITE_TOPIC", "_SYS_MSG_PRIORITY_"} == properties.RESERVED
    assert properties.is_reserved("__RMQ.TRANSIENT.anything")
    assert not properties.is_reserved("keys")
