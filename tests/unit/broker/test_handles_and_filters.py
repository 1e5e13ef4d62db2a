"""Receipt handles, the identity files, filter expressions."""

from __future__ import annotations

import base64
import stat

import pytest

from razzo.broker import filters, identity
from razzo.broker.handles import Receipt, ReceiptHandles, context_of, load_or_make_secret
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime.handles import HandleKind, broker_name
from razzo.runtime.lifecycle import StartFailed
from razzo.storage import siphash24

SECRET = bytes(range(16))
CONTEXT = context_of("group", "topic")
RECEIPT = Receipt(3, 1 << 40, 17, 1_790_000_000_000)


@pytest.fixture
def handles():
    return ReceiptHandles("broker-a", SECRET, siphash24)


class TestReceipts:
    def test_read_back(self, handles):
        handle = handles.make(CONTEXT, RECEIPT)
        assert handles.read(CONTEXT, handle) == RECEIPT
        assert handle.replace("-", "").replace("_", "").isalnum()

    def test_every_node_can_read_the_name(self, handles):
        assert broker_name(handles.make(CONTEXT, RECEIPT), HandleKind.RECEIPT) == "broker-a"

    def test_layout(self, handles):
        raw = base64.urlsafe_b64decode(handles.make(CONTEXT, RECEIPT) + "==")
        body = b"\x01R\x08broker-a" + bytes.fromhex("00000003 0000010000000000 00000011 000001a0c4506c00")
        assert raw == body + siphash24(SECRET, body + b"group\0topic").to_bytes(8, "big")

    @pytest.mark.parametrize(
        "wrong",
        [
            "",
            "nonsense",
            "%%%",
            "ÄÖÜ",
            "A" * (limits.HANDLE_CHARS_MAX + 1),
            "AVIIYnJva2VyLWEAAAADAAABAAAAAAAAAAARAAABoMQdvADXLHd48oM_",
        ],
    )
    def test_unreadable(self, handles, wrong):
        with pytest.raises(RequestRefused) as refused:
            handles.read(CONTEXT, wrong)
        assert refused.value.code == Code.INVALID_RECEIPT_HANDLE

    def test_another_brokers_group_topic_or_secret(self, handles):
        handle = handles.make(CONTEXT, RECEIPT)
        for reader, context in (
            (ReceiptHandles("broker-b", SECRET, siphash24), CONTEXT),
            (ReceiptHandles("broker-a", bytes(16), siphash24), CONTEXT),
            (handles, context_of("group", "other")),
            (handles, context_of("other", "topic")),
        ):
            with pytest.raises(RequestRefused):
                reader.read(context, handle)

    @pytest.mark.parametrize(("name", "secret"), [("", SECRET), ("x" * 256, SECRET), ("x", b"short")])
    def test_what_cannot_make_handles(self, name, secret):
        with pytest.raises(ValueError, match="has"):
            ReceiptHandles(name, secret, siphash24)


class TestIdentity:
    def test_the_secret_is_made_once_and_private(self, tmp_path):
        path = tmp_path / "config" / "handle.key"
        secret = load_or_make_secret(path)
        assert load_or_make_secret(path) == secret
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_a_damaged_secret_is_not_replaced(self, tmp_path):
        path = tmp_path / identity.SECRET_FILE
        path.parent.mkdir(parents=True)
        path.write_bytes(b"short")
        with pytest.raises(StartFailed, match="5 bytes"):
            identity.load(tmp_path, "a")
        assert path.read_bytes() == b"short"

    def test_the_name_is_kept(self, tmp_path):
        assert identity.load(tmp_path, "first").name == "first"
        assert identity.load(tmp_path, "").name == "first"
        with pytest.raises(StartFailed, match="belongs to broker 'first'"):
            identity.load(tmp_path, "second")

    @pytest.mark.parametrize("name", ["a\nb", "x" * 256])
    def test_what_cannot_be_a_name(self, tmp_path, name):
        with pytest.raises(StartFailed, match="cannot be a broker's name"):
            identity.load(tmp_path, name)


class TestFilters:
    @pytest.mark.parametrize("expression", ["", "*", " * "])
    def test_everything(self, expression):
        assert filters.parse(filters.FILTER_TYPE_TAG, expression) == filters.EVERYTHING
        assert filters.EVERYTHING.matches(None)
        assert filters.EVERYTHING.matches("a")

    @pytest.mark.parametrize(
        ("expression", "tags"),
        [("a", {"a"}), ("a||b", {"a", "b"}), (" a || b ", {"a", "b"}), ("a||", {"a"}), ("*||a", {"*", "a"})],
    )
    def test_tags(self, expression, tags):
        parsed = filters.parse(0, expression)
        assert parsed.tags == tags
        assert not parsed.matches(None)
        assert not parsed.matches("c")
        assert all(parsed.matches(tag) for tag in tags)

    @pytest.mark.parametrize(
        ("kind", "expression", "code"),
        [
            (1, "||", Code.ILLEGAL_FILTER_EXPRESSION),
            (1, "||".join(str(n) for n in range(filters.TAGS_MAX + 1)), Code.ILLEGAL_FILTER_EXPRESSION),
            (1, "x" * (limits.FILTER_EXPRESSION_BYTES_MAX + 1), Code.ILLEGAL_FILTER_EXPRESSION),
            (2, "a > 1", Code.NOT_IMPLEMENTED),
        ],
    )
    def test_refused(self, kind, expression, code):
        with pytest.raises(RequestRefused) as refused:
            filters.parse(kind, expression)
        assert refused.value.code == code
