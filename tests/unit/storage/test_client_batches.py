"""Batch bodies of classic clients, built by hand: taken apart, expanded, kept whole, unwrapped."""

import pytest

from razzo.protocol.properties import decode_properties
from razzo.storage import NewMessage, expand_batch, inner_batch, unwrap
from razzo.storage.client_batches import BatchItem, batch_items

HOST = bytes([10, 1, 2, 3, 0, 0, 0x9C, 0x40])
# Two items: flag 7, body "hi", TAGS=A; flag 0, no body, no properties.
FIRST = bytes.fromhex("0000001f 00000000 00000000 00000007 00000002 6869 0007") + b"TAGS\x01A\x02"
SECOND = bytes.fromhex("00000016 00000000 00000000 00000000 00000000 0000")
TWO = FIRST + SECOND


def a_batch(
    body: bytes = TWO, properties: bytes = b"UNIQ_KEY\x01U\x02WAIT\x01true\x02", **fields: object
) -> NewMessage:
    return NewMessage("T", 3, body, properties, **{"born_ms": 5, "born_host": HOST, **fields})  # type: ignore[arg-type]


def test_items_are_read() -> None:
    assert batch_items(TWO) == [BatchItem(7, b"hi", b"TAGS\x01A\x02"), BatchItem(0, b"", b"")]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no message"),
        (TWO[:-1], "item 1 of the batch at byte 31: 21 bytes are too few"),
        (FIRST[:-1], "item 0 of the batch at byte 0: properties of 7 bytes do not fit"),
        (FIRST[:16] + b"\0\0\0\x0a" + FIRST[20:], "item 0 of the batch at byte 0: a body of 10 bytes does not fit"),
        (FIRST[:16] + b"\xff\xff\xff\xff" + FIRST[20:], "a body of -1 bytes does not fit"),
        (SECOND[:-2] + b"\xff\xff", "properties of -1 bytes do not fit"),
        (b"\0\0\0\x20" + FIRST[4:], "says 32 bytes and has 31"),
        (b"\0\0\0\0" + FIRST[4:], "says 0 bytes and has 31"),
        (SECOND * 32_768, "more than 32767 messages"),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        batch_items(body)


@pytest.mark.parametrize("length", range(1, len(TWO)))
def test_every_shorter_body_is_refused_or_ends_at_an_item(length: int) -> None:
    if length == len(FIRST):
        assert len(batch_items(TWO[:length])) == 1
    else:
        with pytest.raises(ValueError, match="item"):
            batch_items(TWO[:length])


def test_a_batch_becomes_ordinary_messages() -> None:
    first, second = expand_batch(a_batch(properties=b"WAIT\x01true\x02INNER_NUM\x012\x02CLUSTER\x01c\x02"))
    assert first == NewMessage("T", 3, b"hi", b"TAGS\x01A\x02WAIT\x01true\x02", 0, 7, 5, HOST)
    assert second == NewMessage("T", 3, b"", b"WAIT\x01true\x02", 0, 0, 5, HOST)


def test_a_missing_terminator_is_put_between_the_properties() -> None:
    unterminated = bytes.fromhex("0000001c 00000000 00000000 00000000 00000000 0006") + b"TAGS\x01A"
    (only,) = expand_batch(a_batch(unterminated, b"WAIT\x01true\x02"))
    assert only.properties == b"TAGS\x01A\x02WAIT\x01true\x02"


DELAYED = bytes.fromhex("0000001e 00000000 00000000 00000000 00000000 0008") + b"DELAY\x013\x02"


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (a_batch(sys_flag=0x4), "transactions"),
        (a_batch(sys_flag=0x1), "compressed"),
        (a_batch()._replace(topic="%RETRY%g"), "retry topic"),
        (a_batch(properties=b"UNIQ_KEY\x01U\x02DELAY\x011\x02"), r"the batch is delayed \(level 1\)"),
        (a_batch(FIRST + DELAYED), r"message 1 of the batch is delayed \(level 3\)"),
        (a_batch(TWO[:-1]), "too few"),
    ],
)
def test_what_cannot_be_in_a_batch(batch: NewMessage, text: str) -> None:
    for make in (expand_batch, inner_batch):
        with pytest.raises(ValueError, match=text):
            make(batch)


def test_a_batch_kept_whole() -> None:
    kept = inner_batch(a_batch())
    assert (kept.sys_flag, kept.body) == (0xC0, TWO)
    assert decode_properties(kept.properties) == {"UNIQ_KEY": "U", "WAIT": "true", "INNER_NUM": "2"}
    with pytest.raises(ValueError, match="needs a UNIQ_KEY"):
        inner_batch(a_batch(properties=b"WAIT\x01true\x02"))


def test_expanded_messages_get_consecutive_offsets(open_store) -> None:  # type: ignore[no-untyped-def]
    store = open_store(commit_log_file_bytes=1 << 16)
    store.append([NewMessage("T", 3, b"before", b"WAIT\x01true\x02")])
    appended = store.append(expand_batch(a_batch()))
    assert [one.queue_offset for one in appended] == [1, 2]
    stored = store.read("T", 3, 1).messages
    assert [(one.body, one.flag, one.properties.get("TAGS")) for one in stored] == [(b"hi", 7, "A"), (b"", 0, None)]
    assert unwrap(stored[0]) == [stored[0]]
