"""The face: appending, rolling, the status table of 3.8, filters, bounds, refusals."""

from collections.abc import Callable
from typing import Any

import pytest

from razzo.storage import MessageTooLarge, NewMessage, ReadStatus, Store, StoreClosed, tag_hash

Make = Callable[..., NewMessage]
Open = Callable[..., Store]


def test_what_goes_in_comes_out(open_store: Open) -> None:
    store = open_store()
    host = bytes([10, 1, 2, 3, 0, 0, 0x9C, 0x40])
    new = NewMessage("Topic", 7, b"hello", b"TAGS\x01A\x02", 0x1, 5, 1_600_000_000_000, host, 3, 77)
    (appended,) = store.append([new])
    message = store.read("Topic", 7, 0).messages[0]
    assert appended == (0, 0, message.size, 1_700_000_000_000)
    assert (message.topic, message.queue_id, message.body, message.raw_properties) == new[:4]
    assert (message.sys_flag, message.flag, message.born_ms, message.born_host) == (1, 5, new.born_ms, "10.1.2.3:40000")
    assert (message.reconsume_times, message.prepared_offset, message.store_host) == (3, 77, "127.0.0.1:10911")
    assert message.properties == {"TAGS": "A"}
    assert message.offset_message_id == "7F00000100002A9F0000000000000000"


def test_ipv6_hosts_set_their_bits(open_store: Open) -> None:
    store = open_store(store_host=("fe80::1", 10911))
    store.append([NewMessage("T", 0, b"x", b"a\x01b\x02", born_host=bytes(15) + b"\1" + bytes([0, 0, 0, 80]))])
    message = store.read("T", 0, 0).messages[0]
    assert message.sys_flag == 0x30
    assert (message.born_host, message.store_host) == ("[::1]:80", "[fe80::1]:10911")


def test_a_batch_gets_consecutive_offsets_in_each_queue(open_store: Open, message: Make) -> None:
    store = open_store()
    appended = store.append([message(number, queue_id=number % 2) for number in range(6)])
    assert [one.queue_offset for one in appended] == [0, 0, 1, 1, 2, 2]
    assert [one.queue_offset for one in store.append([message(6), message(7, queue_id=1)])] == [3, 3]


def test_the_log_rolls_on_the_third_message(open_store: Open, message: Make) -> None:
    store = open_store()
    sizes = [one.size for one in store.append([message(number, body=b"x" * 60) for number in range(3)])]
    third = store.append([message(3, body=b"x" * 60)])[0]
    assert sum(sizes[:2]) + 8 <= 512 < sum(sizes) + 8
    assert third.physical_offset == 512 + sizes[2]
    marker = (store.root / "commitlog" / f"{0:020d}").read_bytes()[sum(sizes[:2]) :][:8]
    assert marker.hex() == f"{512 - sum(sizes[:2]):08x}cbd43194"
    assert [one.queue_offset for one in store.read("T", 0, 0).messages] == [0, 1, 2, 3]


def test_one_batch_over_many_files(open_store: Open, message: Make) -> None:
    store = open_store()
    store.append([message(number) for number in range(40)])
    assert [one.body for one in store.read("T", 0, 0, 100).messages] == [b"body %d" % number for number in range(40)]
    assert store.describe()["log_files"] > 5
    assert len(list((store.root / "consumequeue" / "T" / "0").iterdir())) == 14


@pytest.mark.parametrize(
    ("topic", "offset", "status", "next_offset"),
    [
        ("Nothing", 5, ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0),
        ("T", 0, ReadStatus.FOUND, 5),
        ("T", 5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
        ("T", 6, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
        ("T", -1, ReadStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_statuses(
    open_store: Open, message: Make, topic: str, offset: int, status: ReadStatus, next_offset: int
) -> None:
    store = open_store()
    store.append([message(number) for number in range(5)])
    result = store.read(topic, 0, offset)
    assert (result.status, result.next_offset) == (status, next_offset)
    assert bool(result.messages) == (status is ReadStatus.FOUND)


def test_a_missing_queue_file_is_passed_over(open_store: Open, message: Make) -> None:
    store = open_store()
    store.append([message(number) for number in range(7)])
    store.append([message(7)])
    (store.root / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    result = store.read("T", 0, 1)
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 3)


def test_tags_filter(open_store: Open, message: Make) -> None:
    store = open_store()
    store.append([message(number, tag="AB"[number % 2]) for number in range(6)])
    result = store.read("T", 0, 0, tag_hashes=frozenset({tag_hash("B")}))
    assert [one.queue_offset for one in result.messages] == [1, 3, 5]
    assert result.next_offset == 6
    none = store.read("T", 0, 0, tag_hashes=frozenset({tag_hash("C")}))
    assert (none.status, none.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 6)
    many = frozenset(range(1000, 3000)) | {tag_hash("A")}
    assert [one.queue_offset for one in store.read("T", 0, 0, tag_hashes=many).messages] == [0, 2, 4]


def test_read_bounds(open_store: Open, message: Make) -> None:
    store = open_store(scan_units_max=4)
    size = store.append([message(number) for number in range(8)])[0].size
    assert len(store.read("T", 0, 0, max_count=2).messages) == 2
    assert len(store.read("T", 0, 0, max_bytes=1).messages) == 1
    assert len(store.read("T", 0, 0, max_bytes=2 * size + 1).messages) == 2
    assert store.read("T", 0, 0, tag_hashes=frozenset({1})).next_offset == 4
    assert len(store.read("T", 0, 6, max_count=1 << 40, max_bytes=1 << 60).messages) == 2


def test_single_messages(open_store: Open, message: Make) -> None:
    store = open_store()
    appended = store.append([message(number) for number in range(5)])
    found = store.read_offsets("T", 0, [4, 0, 5, -1])
    assert [one and one.queue_offset for one in found] == [4, 0, None, None]
    assert store.read_offsets("Nothing", 0, [0]) == [None]
    assert store.read_at(appended[3].physical_offset).body == b"body 3"
    assert store.read_at(appended[3].physical_offset + 1) is None
    assert store.read_at(1 << 40) is None
    units = store.units("T", 0, 1, 3)
    assert units == [(one.physical_offset, one.size, tag_hash("A")) for one in appended[1:4]]


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_prepared_and_rollback_records_are_in_no_queue(open_store: Open, message: Make, sys_flag: int) -> None:
    store = open_store()
    half, normal = store.append([message(0, sys_flag=sys_flag), message(1)])
    assert (half.queue_offset, normal.queue_offset) == (0, 0)
    assert [one.body for one in store.read("T", 0, 0).messages] == [b"body 1"]
    assert store.read_at(half.physical_offset).body == b"body 0"
    assert len(store.query_by_key("T", "u0", 9, 0, 1 << 60)) == (1 if sys_flag == 0x4 else 0)


def test_a_delayed_message_has_its_due_time_as_tag_code(open_store: Open) -> None:
    store = open_store()
    for delay in (b"3", b"99", b"0"):
        store.append([NewMessage("SCHEDULE_TOPIC_XXXX", 2, b"x", b"DELAY\x01" + delay + b"\x02TAGS\x01A\x02")])
    codes = [tag_code for _, _, tag_code in store.units("SCHEDULE_TOPIC_XXXX", 2, 0, 9)]
    assert codes == [1_700_000_010_000, 1_700_007_200_000, tag_hash("A")]


BAD: list[tuple[Any, type[Exception], str]] = [
    (NewMessage("T", 0, b"x" * 101, b""), MessageTooLarge, "message 1 .* body has 101 bytes, allowed are 100"),
    (NewMessage("T", 0, b"", b"p" * 51), MessageTooLarge, "properties have 51 bytes"),
    (NewMessage("T" * 256, 0, b"", b""), MessageTooLarge, "topic has 256 bytes"),
    (NewMessage("", 0, b"", b""), MessageTooLarge, "topic has 0 bytes"),
    (NewMessage("a/b", 0, b"", b""), ValueError, "cannot be a folder name"),
    (NewMessage("T", -1, b"", b""), ValueError, "queue id -1"),
    (NewMessage("T", 65536, b"", b""), ValueError, "queue id 65536"),
    (NewMessage("T", 0, b"", b"", born_host=b"123"), ValueError, "packed host"),
    (NewMessage("T", 0, b"", b"", 0x80), ValueError, "an inner batch needs INNER_NUM"),
    (NewMessage("T", 0, b"", b"a\x01b\x00"), ValueError, "zero byte"),
    (NewMessage("T", 0, "text", b""), TypeError, "are bytes"),  # type: ignore[arg-type]
    (("T", 0), TypeError, "not a NewMessage"),
    (NewMessage("T", 1 << 40, b"", b""), OverflowError, "too large"),
]


@pytest.mark.parametrize(("bad", "kind", "text"), BAD, ids=[text for _, _, text in BAD])
def test_a_bad_message_spoils_its_whole_batch_and_nothing_else(
    open_store: Open, message: Make, bad: Any, kind: type[Exception], text: str
) -> None:
    store = open_store(body_bytes_max=100, properties_bytes_max=50)
    store.append([message(0)])
    end = store.max_physical_offset
    with pytest.raises(kind, match=text):
        store.append([message(1), bad])
    assert store.max_physical_offset == end
    assert store.queue_range("T", 0) == (0, 1)
    assert store.append([message(1)])[0].queue_offset == 1


def test_a_record_has_to_fit_a_file(open_store: Open) -> None:
    store = open_store()
    overhead = 91 + 1
    fits = 512 - 8 - overhead
    store.append([NewMessage("T", 0, b"x" * fits, b"")])
    with pytest.raises(MessageTooLarge, match="does not fit a commit-log file of 512"):
        store.append([NewMessage("T", 0, b"x" * (fits + 1), b"")])


def test_an_empty_batch_and_an_empty_message(open_store: Open) -> None:
    store = open_store()
    assert store.append([]) == []
    store.append([NewMessage("T", 0, b"", b"")])
    assert store.read("T", 0, 0).messages[0].body == b""


def test_topics_and_queues(open_store: Open, message: Make) -> None:
    store = open_store()
    assert store.topics() == []
    store.append([message(0, topic="B", queue_id=65535), message(1, topic="A"), message(2, topic="B")])
    assert store.topics() == ["A", "B"]
    assert store.queue_ids("B") == [0, 65535]
    assert store.queue_ids("C") == []
    assert store.queue_range("C", 0) == (0, 0)


def test_thousands_of_topics(open_store: Open, message: Make) -> None:
    store = open_store(commit_log_file_bytes=1 << 20, index_enabled=False)
    store.append([message(number, topic=f"topic-{number}") for number in range(300)])
    assert len(store.topics()) == 300
    assert all(store.queue_range(f"topic-{number}", 0) == (0, 1) for number in range(300))


def test_too_many_queues_are_refused(open_store: Open, message: Make) -> None:
    store = open_store(queues_max=2)
    with pytest.raises(Exception, match="queues_max"):
        store.append([message(0, queue_id=number) for number in range(3)])
    assert store.append([message(0)])[0].physical_offset == 0


def test_store_times_never_go_back(open_store: Open, message: Make, clock: Any) -> None:
    store = open_store()
    store.append([message(0)])
    clock.now_ms -= 5_000
    assert store.append([message(1)])[0].store_ms == clock.now_ms + 5_000


def test_a_closed_store_takes_nothing(open_store: Open, message: Make) -> None:
    store = open_store()
    store.close()
    store.close()
    with pytest.raises(StoreClosed, match="closed"):
        store.append([message()])


def test_tail(open_store: Open, message: Make) -> None:
    store = open_store()
    appended = store.append([message(number) for number in range(6)])
    in_first = [one for one in appended if one.physical_offset < 512]
    whole = store.tail(0, 1 << 20)
    assert len(whole) == sum(one.size for one in in_first)
    assert len(store.tail(0, 1)) == in_first[0].size
    assert store.tail(len(whole), 1 << 20)[28:36] == (512).to_bytes(8, "big")
    assert store.tail(store.max_physical_offset, 100) == b""
    assert store.tail(0, 1 << 20, until=in_first[1].physical_offset) == whole[: in_first[0].size]
    with pytest.raises(ValueError, match="no record begins at offset 3"):
        store.tail(3, 100)
