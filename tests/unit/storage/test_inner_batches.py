"""Topics of inner batches: one record and one 46-byte unit for many messages, found at every offset inside."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from razzo.storage import FlushMode, NewMessage, ReadStatus, Store, StoredMessage, inner_batch, tag_hash, unwrap

Open = Callable[..., Store]
HOST = bytes([10, 1, 2, 3, 0, 0, 0x9C, 0x40])
ROOM = {"commit_log_file_bytes": 1 << 16, "consume_queue_file_units": 3}


def item(body: bytes, properties: bytes = b"TAGS\x01A\x02") -> bytes:
    head = [22 + len(body) + len(properties), 0, 0, 0, len(body)]
    packed = b"".join(number.to_bytes(4, "big") for number in head) + body
    return packed + len(properties).to_bytes(2, "big") + properties


def a_batch(number: int, count: int, topic: str = "B", **fields: Any) -> NewMessage:
    """Bodies "<number>.0" and so on; unique key u<number>, tag A."""
    body = b"".join(item(b"%d.%d" % (number, i)) for i in range(count))
    return inner_batch(
        NewMessage(topic, 0, body, b"UNIQ_KEY\x01u%d\x02TAGS\x01A\x02" % number, born_host=HOST, **fields)
    )


def bodies(messages: list[StoredMessage]) -> list[str]:
    return [one.body.decode() for message in messages for one in unwrap(message)]


def unit_files(root: Path, topic: str = "B") -> list[Path]:
    return sorted((root / "batchconsumequeue" / topic / "0").iterdir())


def filled(open_store: Open, **settings: Any) -> Store:
    """Seven batches of 1 to 7 messages: queue offsets 0, 1, 3, 6, 10, 15, 21 to 28."""
    store = open_store(**ROOM, **settings)
    appended = [store.append([a_batch(number, number + 1)])[0] for number in range(7)]
    assert [one.queue_offset for one in appended] == [0, 1, 3, 6, 10, 15, 21]
    return store


def check_filled(store: Store, batches: int = 7) -> None:
    """Every offset finds its batch, every batch holds its messages."""
    end = batches * (batches + 1) // 2
    assert store.queue_range("B", 0) == (0, end)
    number = 0
    for offset in range(end):
        if offset == (number + 1) * (number + 2) // 2:
            number += 1
        result = store.read("B", 0, offset, 1)
        (message,) = result.messages
        assert (result.status, message.inner_count, message.queue_offset) == (
            ReadStatus.FOUND, number + 1, number * (number + 1) // 2,
        )  # fmt: skip
        assert result.next_offset == message.queue_offset + message.inner_count
        assert [one.queue_offset for one in unwrap(message)] == list(range(message.queue_offset, result.next_offset))
        assert store.read_offsets("B", 0, [offset])[0].queue_offset == message.queue_offset  # type: ignore[union-attr]
    whole = store.read("B", 0, 0)
    assert bodies(whole.messages) == [f"{n}.{i}" for n in range(batches) for i in range(n + 1)]
    assert (whole.next_offset, store.read("B", 0, end).status) == (end, ReadStatus.OFFSET_OVERFLOW_ONE)
    assert store.read("B", 0, end + 1).status is ReadStatus.OFFSET_OVERFLOW_BADLY


def test_the_record_and_its_unit_byte_for_byte(open_store: Open) -> None:
    store = open_store(**ROOM)
    store.append([a_batch(0, 100)])
    (appended,) = store.append([a_batch(1, 5)])
    message = store.read_at(appended.physical_offset)
    assert message is not None
    assert (message.sys_flag, message.queue_offset, appended.queue_offset) == (0xC0, 100, 100)
    assert message.raw_properties == b"UNIQ_KEY\x01u1\x02TAGS\x01A\x02INNER_NUM\x015\x02INNER_BASE\x01100\x02"
    assert message.size == appended.size == 91 + 1 + len(message.body) + len(message.raw_properties)
    store.close()
    (path,) = unit_files(store.root)
    assert (path.name, path.stat().st_size) == ("0" * 20, 3 * 46)
    unit = path.read_bytes()[46:92]
    assert unit == (
        appended.physical_offset.to_bytes(8, "big") + appended.size.to_bytes(4, "big")
        + tag_hash("A").to_bytes(8, "big", signed=True) + appended.store_ms.to_bytes(8, "big")
        + bytes.fromhex("0000000000000064 0005 ffffffff 00000000")
    )  # fmt: skip
    assert not (store.root / "consumequeue" / "B").exists()


def test_every_offset_finds_its_batch(open_store: Open) -> None:
    store = filled(open_store)
    check_filled(store)
    assert [path.name for path in unit_files(store.root)] == [f"{n:020d}" for n in (0, 138, 276)]
    assert [size for _, size, _ in store.units("B", 0, 4, 2)] == [
        message.size for message in store.read("B", 0, 4, 2).messages
    ]


def test_unwrapped_messages_are_whole(open_store: Open) -> None:
    store = filled(open_store)
    (batch,) = store.read("B", 0, 4, 1).messages
    first, second, third = unwrap(batch)
    assert (first.topic, first.queue_id, first.body, first.properties) == ("B", 0, b"2.0", {"TAGS": "A"})
    assert (second.queue_offset, third.queue_offset, third.sys_flag) == (4, 5, 0)
    assert (third.born_host, third.store_ms, third.physical_offset) == (
        "10.1.2.3:40000", batch.store_ms, batch.physical_offset,
    )  # fmt: skip
    assert batch.inner_count == 3
    assert first.inner_count == 0


@pytest.mark.parametrize("crc_property", [False, True])
@pytest.mark.parametrize("lost", [(), ("batchconsumequeue",), ("batchconsumequeue", "index", "checkpoint")])
@pytest.mark.parametrize("clean", [False, True])
def test_reopening(
    open_store: Open, crash: Callable[[Store], None], lost: tuple[str, ...], clean: bool, crc_property: bool
) -> None:
    """Complete queues are used, lost ones rebuilt with the same bytes."""
    store = filled(open_store, append_crc_property=crc_property)
    if clean:
        store.close()
    else:
        crash(store)
    before = [path.read_bytes() for path in unit_files(store.root)]
    for name in lost:
        path = store.root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    again = open_store(**ROOM, append_crc_property=crc_property)
    check_filled(again)
    assert [path.read_bytes() for path in unit_files(again.root)] == before
    assert [one.physical_offset for one in again.query_by_key("B", "u3", 9, 0, 1 << 62)] == [
        again.read("B", 0, 6, 1).messages[0].physical_offset
    ]
    (appended,) = again.append([a_batch(7, 8)])
    assert appended.queue_offset == 28
    check_filled(again, 8)


@pytest.mark.parametrize("kept", range(7))
def test_truncate(open_store: Open, kept: int) -> None:
    store = filled(open_store)
    begin = kept * (kept + 1) // 2
    place = store.read("B", 0, begin, 1).messages[0].physical_offset
    store.truncate(place)
    assert store.queue_range("B", 0) == (0, begin)
    (appended,) = store.append([a_batch(kept, kept + 1)])
    assert (appended.queue_offset, appended.physical_offset) == (begin, place)
    check_filled(store, kept + 1)
    store.close()
    check_filled(open_store(**ROOM), kept + 1)


def test_retention_keeps_the_numbers(open_store: Open, clock: Any) -> None:
    """After the log's first file went, the queue begins at the first batch that is left, also after a restart."""
    settings = {"commit_log_file_bytes": 1_000, "consume_queue_file_units": 3}
    store = open_store(**settings, flush_mode=FlushMode.SYNC, delete_hour=0, disk_max_used_percent=1,
                       disk_clean_forcibly_percent=100, disk_full_percent=100, delete_batch_files_max=1)  # fmt: skip
    ends = [store.append([a_batch(n, 4)])[0].queue_offset + 4 for n in range(9)]
    assert ends[-1] == 36
    store._flusher.flush_now()
    report = store.run_retention(1 << 45)
    assert report.log_files_removed == 1
    first, end = store.queue_range("B", 0)
    assert (first % 4, end) == (0, 36)
    assert first > 0
    assert store.read("B", 0, first - 1).status is ReadStatus.OFFSET_TOO_SMALL
    assert bodies(store.read("B", 0, first, 1).messages)[0] == f"{first // 4}.0"
    store.close()
    again = open_store(**settings)
    assert again.queue_range("B", 0) == (first, 36)
    assert again.append([a_batch(9, 4)])[0].queue_offset == 36


def test_time_search(open_store: Open, clock: Any) -> None:
    store = open_store(**ROOM)
    times = []
    for number in range(5):
        clock.now_ms += 1_000
        times.append(clock.now_ms)
        store.append([a_batch(number, 10)])
    assert [store.offset_by_time("B", 0, at) for at in times] == [0, 10, 20, 30, 40]
    assert store.offset_by_time("B", 0, times[2] + 1) == 30
    assert store.offset_by_time("B", 0, times[2] + 1, upper=True) == 20
    assert store.offset_by_time("B", 0, times[4] + 1) == 50


def test_tag_filter_and_bounds(open_store: Open) -> None:
    store = filled(open_store)
    none = store.read("B", 0, 4, tag_hashes=frozenset({tag_hash("Z")}))
    assert (none.status, none.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 28)
    assert len(store.read("B", 0, 4, tag_hashes=frozenset({tag_hash("A")})).messages) == 5
    assert store.read("B", 0, 4, max_bytes=1).next_offset == 6


async def test_sync_readers_see_only_what_is_on_disk(open_store: Open) -> None:
    store = open_store(**ROOM, flush_mode=FlushMode.SYNC, flush_interval_ms=3_600_000)
    (one,) = store.append([a_batch(0, 5)])
    assert await store.wait_flushed(one.physical_offset + one.size)
    store.append([a_batch(1, 5)], flush=False)
    assert store.queue_range("B", 0) == (0, 5)
    assert store.read("B", 0, 5).status is ReadStatus.OFFSET_OVERFLOW_ONE


ORDINARY = NewMessage("B", 0, b"x", b"TAGS\x01A\x02")


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ([ORDINARY], "message 0 of the batch: its queue takes only inner batches"),
        ([a_batch(0, 1, "S")], "message 0 of the batch: its queue takes only ordinary messages"),
        ([a_batch(8, 1), ORDINARY], "message 1 of the batch: its queue takes only inner batches"),
        ([ORDINARY._replace(topic="S", properties=b"INNER_NUM\x015\x02")], "without the inner batch flag"),
        ([ORDINARY._replace(sys_flag=0xC0)], "needs INNER_NUM"),
        ([ORDINARY._replace(sys_flag=0xC0, properties=b"INNER_NUM\x010\x02")], "needs INNER_NUM"),
        ([ORDINARY._replace(sys_flag=0xC0, properties=b"INNER_NUM\x0132768\x02")], "needs INNER_NUM, 1 to 32767"),
        (
            [ORDINARY._replace(sys_flag=0xC0, properties=b"INNER_NUM\x011\x02INNER_BASE\x010\x02")],
            "INNER_BASE is given",
        ),
        ([ORDINARY._replace(sys_flag=0xC4, properties=b"INNER_NUM\x011\x02")], "no part in transactions"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(open_store: Open, batch: list[NewMessage], text: str) -> None:
    store = filled(open_store)
    store.append([ORDINARY._replace(topic="S")])
    end = store.max_physical_offset
    with pytest.raises(ValueError, match=text):
        store.append(batch)
    assert store.max_physical_offset == end
    check_filled(store)
    assert store.append([a_batch(7, 8)])[0].queue_offset == 28


def test_mixed_kinds_in_one_append(open_store: Open) -> None:
    """Digits of INNER_BASE change a record's size while a batch is planned."""
    store = open_store(**ROOM)
    appended = store.append([a_batch(0, 9), ORDINARY._replace(topic="S"), a_batch(1, 1), a_batch(2, 90), a_batch(3, 2)])
    assert [one.queue_offset for one in appended] == [0, 0, 9, 10, 100]
    assert [one.properties["INNER_BASE"] for one in store.read("B", 0, 0).messages] == ["0", "9", "10", "100"]
    assert all(
        one.physical_offset + one.size == following.physical_offset for one, following in itertools.pairwise(appended)
    )


def test_a_deleted_topic_of_batches_is_gone(open_store: Open, crash: Callable[[Store], None]) -> None:
    store = filled(open_store)
    store.delete_topic("B")
    assert not (store.root / "batchconsumequeue" / "B").exists()
    crash(store)
    again = open_store(**ROOM)
    assert again.topics() == []
    # The name may come back as an ordinary topic.
    assert again.append([ORDINARY])[0].queue_offset == 0
    assert again.queue_range("B", 0) == (0, 1)


def test_topics_json_tells_the_kind_of_a_queue_that_begins_with_something_else(
    open_store: Open, crash: Callable[[Store], None]
) -> None:
    """Apache appends ordinary messages to such a topic too, and gives them no unit."""
    store = open_store(**ROOM)
    store.append([ORDINARY, ORDINARY])
    crash(store)
    shutil.rmtree(store.root / "consumequeue")
    (store.root / "config").mkdir(exist_ok=True)
    table = {"B": {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}}
    (store.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    again = open_store(**ROOM)
    assert again.topics() == []
    assert again.append([a_batch(0, 3)])[0].queue_offset == 0
    assert bodies(again.read("B", 0, 1).messages) == ["0.0", "0.1", "0.2"]
    again.offer_topic("B", 1)


def test_a_queue_found_as_both_kinds_is_rebuilt(open_store: Open) -> None:
    store = filled(open_store)
    store.append([ORDINARY._replace(topic="S")])
    store.close()
    shutil.copytree(store.root / "consumequeue" / "S", store.root / "consumequeue" / "B")
    again = open_store(**ROOM)
    check_filled(again)
    assert not (store.root / "consumequeue" / "B" / "0").exists()
    assert again.queue_range("S", 0) == (0, 1)


def test_a_broken_unit_file_is_rebuilt(open_store: Open) -> None:
    store = filled(open_store)
    store.close()
    newest = unit_files(store.root)[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    check_filled(open_store(**ROOM))
