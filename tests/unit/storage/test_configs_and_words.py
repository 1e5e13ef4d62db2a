"""config/*.json, the checkpoint page, hashes and ids, settings."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from razzo.storage import (
    Store,
    StoreSettings,
    offset_message_id,
    pack_host,
    parse_offset_message_id,
    siphash24,
    tag_hash,
)
from razzo.storage.checkpoint import Checkpoint, CheckpointFile
from razzo.storage.configs import Configs, parse, quote_bare_keys
from razzo.storage.faulty_files import FaultyFiles
from razzo.storage.files import FileLayer


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{0:12,1:9}", {"0": 12, "1": 9}),
        ('{\n\t"offsetTable":{"t@g":{0:12, 1 :9}\n}}', {"offsetTable": {"t@g": {"0": 12, "1": 9}}}),
        ('{"a,1:2":"{3:4}"}', {"a,1:2": "{3:4}"}),
        ('{"q\\"{1:":{-1:2}}', {'q"{1:': {"-1": 2}}),
        ('{"l":[1,2,{3:4}]}', {"l": [1, 2, {"3": 4}]}),
        ("{}", {}),
    ],
)
def test_bare_integer_keys(text: str, wanted: dict[str, Any]) -> None:
    assert parse(text.encode()) == wanted
    assert quote_bare_keys(quote_bare_keys(text)) == quote_bare_keys(text)


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff", b"12"])
def test_what_is_no_object_is_nothing(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize("broken", [None, b"", b"{broken"])
def test_the_backup_stands_in_and_survives(tmp_path: Path, broken: bytes | None) -> None:
    configs = Configs(tmp_path, FileLayer())
    configs.save("topics", {"n": 1})
    configs.save("topics", {"n": 2})
    assert configs.load("topics") == {"n": 2}
    path = tmp_path / "topics.json"
    path.unlink() if broken is None else path.write_bytes(broken)
    assert configs.load("topics") == {"n": 1}
    configs.save("topics", {"n": 3})
    assert configs.load("topics") == {"n": 3}
    path.write_bytes(b"")
    assert configs.load("topics") == {"n": 1}


class Killed(Exception):
    pass


@pytest.mark.parametrize("point", ["config.temp_written", "config.backed_up", "config.renamed"])
def test_old_or_new_never_nothing(tmp_path: Path, point: str) -> None:
    files = FaultyFiles()
    configs = Configs(tmp_path, files)
    configs.save("topics", {"n": 1})

    def kill() -> None:
        raise Killed

    files.at(point, kill)
    with pytest.raises(Killed):
        configs.save("topics", {"n": 2})
    after = Configs(tmp_path, FileLayer())
    assert after.load("topics") == {"n": 2 if point == "config.renamed" else 1}
    after.save("topics", {"n": 3})
    assert after.load("topics") == {"n": 3}


@pytest.mark.parametrize("name", ["../evil", "", "a/b", ".hidden", "..", "a b"])
def test_config_names(open_store: Callable[..., Store], name: str) -> None:
    store = open_store()
    with pytest.raises(ValueError, match="not a config name"):
        store.save_config(name, {})
    assert store.load_config("never-written") is None


def test_the_checkpoint_page(tmp_path: Path) -> None:
    value = Checkpoint(1_700_000_000_123, 1_700_000_000_123, 0, 0, 182, 3)
    page = value.encode()
    assert len(page) == 4096
    assert page[:40] == struct.pack(">5q", 1_700_000_000_123, 1_700_000_000_123, 0, 0, 182)
    assert Checkpoint.decode(page) == value
    file = CheckpointFile(tmp_path / "checkpoint", FileLayer())
    assert file.load() == Checkpoint()
    file.save(value)
    assert CheckpointFile(tmp_path / "checkpoint", FileLayer()).load() == value


@pytest.mark.parametrize("at", [0, 7, 39, 40, 47])
def test_a_checkpoint_that_does_not_add_up_counts_as_none(at: int) -> None:
    page = bytearray(Checkpoint(5, 5, 5, 5, 5).encode())
    page[at] ^= 1
    assert Checkpoint.decode(bytes(page)) == Checkpoint()
    assert Checkpoint.decode(b"short") == Checkpoint()
    assert Checkpoint.decode(bytes(4096)) == Checkpoint()


def test_replay_starts_three_seconds_before_the_older_time() -> None:
    assert Checkpoint(log_ms=10_000, queues_ms=8_000).replay_from_ms == 5_000
    assert Checkpoint(log_ms=10_000, queues_ms=0).replay_from_ms == 0


# First vectors of the SipHash authors' reference implementation: key 00..0f, message 00..(n-1).
SIPHASH = [0x726FDB47DD0E0E31, 0x74F839C593DC67FD, 0x0D6C8009D9A94F5A, 0x85676696D7FB7E2D]


@pytest.mark.parametrize(("length", "wanted"), list(enumerate(SIPHASH)))
def test_siphash(length: int, wanted: int) -> None:
    assert siphash24(bytes(range(16)), bytes(range(length))) == wanted


def test_siphash_of_the_paper() -> None:
    assert siphash24(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5
    assert siphash24(bytes(range(16)), memoryview(bytearray(range(15)))) == 0xA129CA6149BE45E5
    with pytest.raises(ValueError, match="16 bytes"):
        siphash24(b"short", b"")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("payment", -786681338),
        ("中文", 646394),
        ("😀", 1772899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_java_hash(text: str, wanted: int) -> None:
    assert tag_hash(text) == wanted


def test_offset_message_ids() -> None:
    text = offset_message_id(pack_host("192.168.1.10", 10911), 0x1234)
    assert text == "C0A8010A00002A9F0000000000001234"
    assert parse_offset_message_id(text) == ("192.168.1.10", 10911, 0x1234)
    assert parse_offset_message_id(offset_message_id(pack_host("fe80::1", 1), 7)) == ("fe80::1", 1, 7)
    for bad in ("", "C0A8", "Z" * 32):
        with pytest.raises(ValueError, match=r"hex"):
            parse_offset_message_id(bad)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("commit_log_file_bytes", 255),
        ("commit_log_file_bytes", 1 << 31),
        ("consume_queue_file_units", 0),
        ("index_units", 1),
        ("properties_bytes_max", 32768),
        ("delete_hour", 24),
        ("disk_full_percent", 80),
    ],
)
def test_settings_that_make_no_sense(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=field if field != "disk_full_percent" else "must rise"):
        StoreSettings(**{field: value})
