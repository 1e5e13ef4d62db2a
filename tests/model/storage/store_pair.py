"""A real Store and its twin, driven together: every step is done to both, and every answer and byte is compared.

Used by the model tests (random runs), by the golden tests and by the system tests, which break the Store's files on
purpose and then ask for the same comparison.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twin.key_index import KeyIndex
from twin.queues import UNIT_BYTES, decode_unit
from twin.records import Record, decode_properties, offset_message_id, pack_host, show_host
from twin.store import Message, Read, TwinStore

from razzo.storage import FlushMode, NewMessage, ReadResult, Store, StoredMessage, StoreSettings

WAIT_S_MAX = 20
INSPECTED_UNITS_MIN = 800
KEY_HITS_MAX = 64
TINY: dict[str, Any] = {
    "commit_log_file_bytes": 1024,
    "consume_queue_file_units": 5,
    "index_slots": 7,
    "index_units": 9,
    "flush_mode": FlushMode.ASYNC,
    "store_host": ("192.168.1.10", 10911),
}


class Clock:
    """A clock that goes on only when it is told to, in ms."""

    def __init__(self, now_ms: int = 1_700_000_000_000):
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def twin_of(settings: StoreSettings) -> TwinStore:
    return TwinStore(
        file_bytes=settings.commit_log_file_bytes,
        queue_file_units=settings.consume_queue_file_units,
        index_slots=settings.index_slots,
        index_units=settings.index_units,
        store_host=pack_host(*settings.store_host),
        crc_property=settings.append_crc_property,
    )


def new_message(message: Message) -> NewMessage:
    return NewMessage(**message._asdict())


def facts(message: StoredMessage | Record) -> dict[str, Any]:
    """Every fact of a message, from either side, in one spelling."""
    if isinstance(message, Record):
        return {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "physical_offset": message.physical_offset,
            "size": message.size,
            "store_ms": message.store_ms,
            "born_ms": message.born_ms,
            "born_host": show_host(message.born_host),
            "store_host": show_host(message.store_host),
            "sys_flag": message.sys_flag,
            "flag": message.flag,
            "body": message.body,
            "raw_properties": message.properties,
            "properties": decode_properties(message.properties),
            "reconsume_times": message.reconsume_times,
            "prepared_offset": message.prepared_offset,
            "offset_message_id": offset_message_id(message.store_host, message.physical_offset),
        }
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size": message.size,
        "store_ms": message.store_ms,
        "born_ms": message.born_ms,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "body": bytes(message.body),
        "raw_properties": bytes(message.raw_properties),
        "properties": dict(message.properties),
        "reconsume_times": message.reconsume_times,
        "prepared_offset": message.prepared_offset,
        "offset_message_id": message.offset_message_id,
    }


def same(got: StoredMessage | None, wanted: Record | None, where: str = "") -> None:
    assert (got is None) == (wanted is None), f"{where}: {got} instead of {wanted}"
    if got is not None and wanted is not None:
        assert facts(got) == facts(wanted), where


def next_delete_hour_ms(settings: StoreSettings) -> int:
    """A moment within the next day at which expired files are removed; what was written today has not expired then."""
    now = time.localtime()
    moment = (now.tm_year, now.tm_mon, now.tm_mday + 1, settings.delete_hour, 30, 0, 0, 0, -1)
    return int(time.mktime(moment)) * 1000


class Pair:
    """One Store over `root` and the twin that says what it must hold.

    `dirty`: files may hold old bytes beyond what counts, after a cut. `index_rebuilt`: index files were made anew by a
    recovery, which may divide the same entries among other files; keys are then compared by their answers alone.
    """

    def __init__(self, root: Path, clock: Clock | None = None, twin: TwinStore | None = None, **changed: Any):
        self.root, self.clock = root, clock or Clock()
        self.settings = StoreSettings(**{**TINY, **changed})
        self.twin = twin or twin_of(self.settings)
        self.dirty = self.index_rebuilt = False
        self.loop = asyncio.new_event_loop()
        self.store = self._opened()

    def _opened(self) -> Store:
        store = Store(self.root, self.settings, clock_ms=self.clock)
        store.attach_loop(self.loop)
        store.open()
        return store

    # -- steps --------------------------------------------------------------------------------------------------------

    def append(self, batch: list[Message]) -> list[Record]:
        wanted = self.twin.append(batch, self.clock.now_ms)
        got = self.store.append([new_message(message) for message in batch])
        assert [tuple(one) for one in got] == [
            (record.queue_offset, record.physical_offset, record.size, record.store_ms) for record in wanted
        ]
        assert self.store.max_physical_offset == self.twin.end
        return wanted

    def flush(self) -> None:
        """Waits until everything is on disk and readable."""
        done = self.loop.run_until_complete(self.store.wait_flushed(self.twin.end, WAIT_S_MAX))
        assert done, f"not flushed to {self.twin.end} within {WAIT_S_MAX} s"
        assert self.store.confirm_offset >= self.twin.end

    def truncate(self, offset: int) -> None:
        self.twin.truncate(offset)
        self.store.truncate(offset)
        self.dirty = True

    def drop_topic(self, topic: str) -> None:
        self.twin.drop_topic(topic)
        self.store.delete_topic(topic)

    def retain(self, files: int) -> None:
        """Lets the first `files` commit-log files expire; the last one never goes."""
        self.flush()
        paths = sorted(path for path in (self.root / "commitlog").iterdir() if int(path.name) < self.twin.end)
        for path in paths[:-1][:files]:
            os.utime(path, (0, 0))
        report = self.store.run_retention(next_delete_hour_ms(self.settings))
        kept = paths[min(files, len(paths) - 1)] if paths else None
        base = int(kept.name) if kept is not None else self.twin.base
        assert (report.min_physical_offset, self.store.min_physical_offset) == (base, base)
        self.twin.retain_from(base)
        self.index_rebuilt = True

    def close(self) -> None:
        self.store.close()
        self.loop.close()

    def reopen_after_stop(self) -> None:
        self.store.close()
        self.store = self._opened()

    def reopen_after_kill(self, root: Path, damage: Callable[[Path], None] | None = None) -> None:
        """Goes on with what the page cache holds of the running store's files: the moment a kill -9 would leave."""
        shutil.copytree(self.root, root)
        assert (root / "abort").exists(), "a running store must have its abort file"
        self.store.close()
        if damage is not None:
            damage(root)
        self.root, self.index_rebuilt = root, True
        self.store = self._opened()

    # -- comparisons --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.check_log_files()
        self.check_queue_files()
        self.check_index_files()
        self.check_answers()

    def check_log_files(self) -> None:
        found = {path.name: path.read_bytes() for path in sorted((self.root / "commitlog").iterdir())}
        wanted = self.twin.log_files()
        for name, data in found.items():
            assert len(data) == self.settings.commit_log_file_bytes, name
            if name not in wanted:
                assert int(name) >= self.twin.end or self.dirty, f"commit-log file {name} holds nothing of ours"
        if not self.dirty:
            blank = bytes(self.settings.commit_log_file_bytes)
            assert {name: found.get(name, b"").hex() for name in wanted} == {n: d.hex() for n, d in wanted.items()}
            assert all(data == blank for name, data in found.items() if name not in wanted)
            return
        for offset, data in self.twin.log_pieces():
            at = offset % self.settings.commit_log_file_bytes
            assert found[f"{offset - at:020d}"][at : at + len(data)].hex() == data.hex(), f"piece at {offset}"

    def check_queue_files(self) -> None:
        wanted = self.twin.queue_files()
        top = self.root / "consumequeue"
        blank = bytes(self.settings.consume_queue_file_units * UNIT_BYTES)
        for path in sorted(top.glob("*/*/*")):
            key = (path.parent.parent.name, int(path.parent.name))
            data, right = path.read_bytes(), wanted.get(key, {}).get(path.name, blank)
            live = right.rstrip(b"\0") if self.dirty else right
            gone = self._expired_bytes(key, path.name)
            assert data[gone : len(live)].hex() == live[gone:].hex(), f"{path}: {_units(data)} not {_units(right)}"
        for (topic, queue_id), files in wanted.items():
            missing = set(files) - {path.name for path in (top / topic / str(queue_id)).iterdir()}
            assert not missing, f"queue {topic}/{queue_id} lacks {missing}"

    def _expired_bytes(self, key: tuple[str, int], name: str) -> int:
        """Bytes of a queue file whose units retention made unreadable: what they hold does not count."""
        if not self.twin.base or key not in self.twin.queues:
            return 0
        return max(0, self.twin.queues[key].first * UNIT_BYTES - int(name))

    def check_index_files(self) -> None:
        if self.dirty or self.index_rebuilt or not self.settings.index_enabled:
            return
        index: KeyIndex = self.twin.index()
        folder = self.root / "index"
        found = [path.read_bytes() for path in sorted(folder.iterdir())] if folder.exists() else []
        found = [data for data in found if any(data[: 40 + 4 * index.slots_max])]
        assert [data.hex() for data in found] == [file.encode().hex() for file in index.files]

    def check_answers(self) -> None:
        assert sorted(self.store.topics()) == self.twin.topics()
        for topic in self.twin.topics():
            assert sorted(self.store.queue_ids(topic)) == self.twin.queue_ids(topic)
            for queue_id in self.twin.queue_ids(topic):
                self.check_queue(topic, queue_id)
        for record in self.twin.records:
            same(self.store.read_at(record.physical_offset), record, f"read_at({record.physical_offset})")
        self.check_tail()

    def check_queue(self, topic: str, queue_id: int) -> None:
        low, high = self.twin.queue_range(topic, queue_id)
        assert self.store.queue_range(topic, queue_id) == (low, high)
        at, got = low, []
        while at < high:
            at = self.check_read(topic, queue_id, at, got)
        wanted = self.twin.in_queue(topic, queue_id)
        assert [facts(message) for message in got] == [facts(record) for record in wanted]
        units = [tuple(unit) for unit in self.twin.queues[topic, queue_id].units]
        assert [tuple(unit) for unit in self.store.units(topic, queue_id, low, high - low)] == units
        offsets = [*range(low, high), high, high + 3]
        answers = self.store.read_offsets(topic, queue_id, offsets)
        for offset, answer, right in zip(offsets, answers, [*wanted, None, None], strict=True):
            same(answer, right, f"read_offsets {topic}/{queue_id}/{offset}")

    def check_read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        into: list[StoredMessage] | None = None,
        count: int = 32,
        size: int = 256 << 10,
        tags: frozenset[int] | None = None,
    ) -> int:
        """One read, held against the twin's longest answer; the offset to go on from."""
        result: ReadResult = self.store.read(topic, queue_id, offset, count, size, tags)
        best: Read = self.twin.read(topic, queue_id, offset, count, size, tags)
        where = f"read {topic}/{queue_id}/{offset} count={count} size={size} tags={tags}: {result} instead of {best}"
        if best.status == "NO_MESSAGE_IN_QUEUE":
            assert result.status.name in ("NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE"), where
            return best.next_offset
        if best.status not in ("FOUND", "NO_MATCHED_MESSAGE"):
            assert (result.status.name, result.next_offset, list(result.messages)) == best, where
            return best.next_offset
        got = [facts(message) for message in result.messages]
        assert result.status.name == ("FOUND" if got else "NO_MATCHED_MESSAGE"), where
        assert got == [facts(record) for record in best.records[: len(got)]], where
        assert offset < result.next_offset <= best.next_offset, where
        if len(got) < len(best.records):
            _assert_fair_stop(result.next_offset, offset, self.settings.consume_queue_file_units, tags, where)
            assert result.next_offset <= best.records[len(got)].queue_offset, where
        elif got:
            assert result.next_offset > best.records[-1].queue_offset, where
        if into is not None:
            into.extend(result.messages)
        return result.next_offset

    def check_tail(self) -> None:
        """The log read as raw bytes gives every record again, whole, in order."""
        pieces = dict(self.twin.log_pieces())
        for record in self.twin.records:
            data = bytes(self.store.tail(record.physical_offset, record.size))
            assert data.hex() == pieces[record.physical_offset].hex(), f"tail at {record.physical_offset}"

    def check_key(self, topic: str, key: str) -> None:
        """A key's records, oldest first; with a cap, the newest of them."""
        wanted = sorted({record.physical_offset for record in self.twin.by_key(topic, key)})
        for cap in (1, len(wanted) + 1):
            got = self.store.query_by_key(topic, key, cap, 0, self.clock.now_ms + 1000)
            right = wanted[-min(cap, KEY_HITS_MAX) :]
            assert [message.physical_offset for message in got] == right, f"key {key} of {topic}, at most {cap}"


def _units(data: bytes) -> list[Any]:
    return [tuple(decode_unit(data, at)) for at in range(0, len(data), UNIT_BYTES)]


def _assert_fair_stop(stop: int, start: int, file_units: int, tags: frozenset[int] | None, where: str) -> None:
    """A read may stop before its limits at the end of a queue file, or after it filtered many units; nowhere else."""
    assert stop % file_units == 0 or (tags is not None and stop - start >= INSPECTED_UNITS_MIN), where
