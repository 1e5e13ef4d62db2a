"""The broker name in handles; the layout is written out by hand here."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime.handles import HandleKind, broker_name


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def handle(kind: bytes, name: str, payload: bytes = b"payload", version: int = 1) -> str:
    raw_name = name.encode()
    return encoded(bytes([version]) + kind + bytes([len(raw_name)]) + raw_name + payload + bytes(8))


@pytest.mark.parametrize(
    ("letter", "kind"),
    [(b"R", HandleKind.RECEIPT), (b"T", HandleKind.TRANSACTION), (b"D", HandleKind.RECALL)],
)
@pytest.mark.parametrize("name", ["a", "broker-0", "brök", "x" * 255])
def test_the_name_is_read(letter: bytes, kind: HandleKind, name: str) -> None:
    assert broker_name(handle(letter, name), kind) == name


def test_a_handle_of_today() -> None:
    assert broker_name("AVICdm0AAAAAAAAAAAAAAAAAAAABAAABof0tlSicM6GeeBMVow", HandleKind.RECEIPT) == "vm"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (HandleKind.RECEIPT, Code.INVALID_RECEIPT_HANDLE),
        (HandleKind.TRANSACTION, Code.INVALID_TRANSACTION_ID),
        (HandleKind.RECALL, Code.BAD_REQUEST),
    ],
)
@pytest.mark.parametrize(
    "bad",
    [
        "",
        "?",
        "AAAA",
        "ü" * 40,
        "A" * 2049,
        handle(b"X", "a"),
        handle(b"R", "a", version=2),
        handle(b"R", ""),
        encoded(b"\x01R\xffshort" + bytes(8)),
        encoded(b"\x01R\x02\xff\xfe" + bytes(8)),
        "0 1700000000 60000 3 0 broker-a 1 2 3",
    ],
)
def test_what_is_no_handle_is_refused_with_the_code_of_its_kind(kind: HandleKind, code: Code, bad: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        broker_name(bad, kind)
    assert refused.value.code is code


def test_a_handle_of_another_kind_is_refused() -> None:
    with pytest.raises(RequestRefused):
        broker_name(handle(b"R", "a"), HandleKind.TRANSACTION)


@given(st.text(max_size=60) | st.binary(max_size=60).map(encoded))
def test_anything_is_either_read_or_refused(text: str) -> None:
    try:
        outcome: object = broker_name(text, HandleKind.RECEIPT)
    except RequestRefused as refused:
        outcome = refused.code
    assert isinstance(outcome, str) or outcome is Code.INVALID_RECEIPT_HANDLE
