"""config/*.json under damage and in Apache's spelling: the best copy there is wins, and none is silently half."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_pair import TINY

from razzo.storage import Store, StoreSettings

OLD, NEW = {"offsetTable": {"T@g": {"0": 7}}}, {"offsetTable": {"T@g": {"0": 12, "1": 9}}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path, StoreSettings(**TINY))
    store.open()
    yield store
    store.close()


@pytest.fixture
def config(store: Store, tmp_path: Path) -> Path:
    """The main file, saved twice, so that a .bak with the old value lies beside it."""
    store.save_config("consumerOffset", OLD)
    store.save_config("consumerOffset", NEW)
    return tmp_path / "config" / "consumerOffset.json"


def test_what_was_saved_is_loaded(store: Store, config: Path) -> None:
    assert store.load_config("consumerOffset") == NEW
    assert json.loads(config.with_name("consumerOffset.json.bak").read_text()) == OLD


def test_what_was_never_saved_is_none(store: Store) -> None:
    assert store.load_config("topics") is None


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"offsetTable":{"T@g":{"0":12,"1"', b"\0" * 40, b"\xff\xfe{}", b"[1]", b"null", b"{}x"],
    ids=["empty", "one brace", "cut", "zeros", "no UTF-8", "a list", "null", "garbage behind"],
)
def test_a_damaged_file_falls_back_to_its_bak(store: Store, config: Path, damage: bytes) -> None:
    config.write_bytes(damage)
    assert store.load_config("consumerOffset") == OLD


def test_a_missing_file_falls_back_to_its_bak(store: Store, config: Path) -> None:
    config.unlink()
    assert store.load_config("consumerOffset") == OLD


def test_a_damaged_file_does_not_become_the_bak(store: Store, config: Path) -> None:
    """A save over a damaged main file must not push the last good copy out."""
    config.write_bytes(b"{")
    assert store.load_config("consumerOffset") == OLD
    store.save_config("consumerOffset", NEW)
    assert store.load_config("consumerOffset") == NEW
    config.write_bytes(b"{")
    assert store.load_config("consumerOffset") in (OLD, NEW)


def test_both_copies_damaged(store: Store, config: Path) -> None:
    config.write_bytes(b"{")
    config.with_name("consumerOffset.json.bak").write_bytes(b"")
    assert store.load_config("consumerOffset") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"offsetTable":{"T@g":{0:12,1:9}}}', {"offsetTable": {"T@g": {"0": 12, "1": 9}}}),
        ('{"offsetTable":{"a:1,2:b@g {3:":{ 10 : 1 }}}', {"offsetTable": {"a:1,2:b@g {3:": {"10": 1}}}),
        ('{"offsetTable":{1:0,3:17}}', {"offsetTable": {"1": 0, "3": 17}}),
        ('{"t":{"a\\"{5:":{-1:2}}}', {"t": {'a"{5:': {"-1": 2}}}),
        ('{\n\t"dataVersion":{\n\t\t"counter":1\n\t}\n}', {"dataVersion": {"counter": 1}}),
    ],
    ids=["bare keys", "digits inside strings", "delay levels", "escaped quote and a negative key", "pretty"],
)
def test_apache_spelling_is_read(store: Store, tmp_path: Path, text: str, value: dict) -> None:
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "any.json").write_text(text)
    assert store.load_config("any") == value
