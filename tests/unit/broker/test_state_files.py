"""The wire form of state events, the snapshot file, RocketMQ's JSON files."""

from __future__ import annotations

import pytest

from razzo.broker import json_files, snapshot_file, state_codec
from razzo.broker.delivery_events import Acked, Leased, PositionSet, Rescheduled
from razzo.broker.groups import ExponentialRetry, Group, GroupDeleted, GroupPut
from razzo.broker.topics import Topic, TopicDeleted, TopicPut, TopicType
from razzo.v1 import state_pb2

KEY = ("group", "topic", 3)
TOPICS = [
    Topic("plain", 8, 4),
    Topic("ordered", 1, 1, 4, TopicType.FIFO, {"cleanup.policy": "DELETE"}, True, 1),
    Topic("any", 1, 1, type=TopicType.MIXED),
]
GROUPS = [
    Group("plain"),
    Group("listed", True, 3, (100, 200), consume_enabled=False, attributes={"a": "b"}),
    Group("curved", exponential=ExponentialRetry(5, 80, 2.0)),
]
EVENTS = [
    *map(TopicPut, TOPICS),
    TopicDeleted("gone"),
    *map(GroupPut, GROUPS),
    GroupDeleted("gone"),
    PositionSet(KEY, 1 << 40, True),
    Leased(KEY, (1 << 40, (1 << 40) + 5), (1, 17), 1_790_000_000_000, 1_790_000_010_000, (1 << 40) + 6),
    Leased(KEY, (9, 2), (1, 2), 5, 6, 10),
    Acked(KEY, [7, 5, 1 << 30]),
    Rescheduled(KEY, 5, 77, 66),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_survive_the_wire(event):
    encoded = state_codec.encode(event).SerializeToString()
    assert state_codec.decode(state_pb2.StateEvent.FromString(encoded)) == event


def test_an_event_of_a_newer_version_is_none():
    assert state_codec.decode(state_pb2.StateEvent()) is None


def test_batches_are_bounded_and_complete():
    acked = [Acked(KEY, list(range(n, n + 4_000))) for n in range(0, 400_000, 4_000)]
    encoded = list(state_codec.batches(acked))
    assert len(encoded) > 1
    assert max(map(len, encoded)) < 1 << 20
    decoded = [
        state_codec.decode(event) for batch in encoded for event in state_pb2.StateBatch.FromString(batch).events
    ]
    assert decoded == acked
    assert list(state_codec.batches([])) == []


class TestSnapshotFile:
    SNAPSHOT = state_pb2.StateSnapshot(log_offset=5, state_queue_offset=7)

    def test_written_and_read(self, tmp_path):
        path = tmp_path / "config" / "snapshot.bin"
        assert snapshot_file.read(path) is None
        for offset in (1, 2):
            self.SNAPSHOT.log_offset = offset
            snapshot_file.write(path, self.SNAPSHOT.SerializeToString())
            assert snapshot_file.read(path) == self.SNAPSHOT
        assert [each.name for each in path.parent.iterdir()] == ["snapshot.bin"]

    def test_every_flipped_bit_and_every_cut_is_noticed(self, tmp_path):
        path = tmp_path / "snapshot.bin"
        snapshot_file.write(path, self.SNAPSHOT.SerializeToString())
        content = path.read_bytes()
        damaged = [content[:end] for end in range(len(content))]
        for at in range(len(content)):
            damaged += [content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :] for bit in range(8)]
        for each in damaged:
            path.write_bytes(each)
            with pytest.raises(snapshot_file.SnapshotDamaged):
                snapshot_file.read(path)


class TestJsonFiles:
    NOW_MS = 1_790_000_000_000

    def test_topics_and_groups_come_back(self):
        assert json_files.topics_of(json_files.topics_value(TOPICS, {}, self.NOW_MS)) == TOPICS
        assert json_files.groups_of(json_files.groups_value(GROUPS, {}, self.NOW_MS)) == GROUPS

    def test_offsets_come_back(self):
        positions = [("g", "t", 0, 12), ("g", "t", 1, 9), ("g@h", "%RETRY%g", 0, 1)]
        value = json_files.offsets_value(positions, {}, self.NOW_MS)
        assert value["offsetTable"]["t@g"] == {"0": 12, "1": 9}
        assert json_files.offsets_of(json_files.offsets_value(positions[:2], {}, self.NOW_MS)) == positions[:2]

    def test_the_shape_that_rocketmq_reads(self):
        value = json_files.topics_value(TOPICS, {"dataVersion": {"counter": 2}}, self.NOW_MS)
        assert value["dataVersion"] == {"counter": 3, "stateVersion": 0, "timestamp": 1_790_000_000_000}
        assert value["topicConfigTable"]["ordered"] == {
            "attributes": {"cleanup.policy": "DELETE", "message.type": "FIFO"},
            "order": True,
            "perm": 4,
            "readQueueNums": 1,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "ordered",
            "topicSysFlag": 1,
            "writeQueueNums": 1,
        }
        assert json_files.groups_value(GROUPS, {}, self.NOW_MS)["subscriptionGroupTable"]["curved"][
            "groupRetryPolicy"
        ] == {"exponentialRetryPolicy": {"initial": 5, "max": 80, "multiplier": 2}, "type": "EXPONENTIAL"}

    def test_what_a_file_says_beyond_our_settings_is_kept(self):
        topics = {"topicConfigTable": {"plain": {"perm": 2, "topicFilterType": "MULTI_TAG"}, "gone": {"perm": 6}}}
        table = json_files.topics_value(TOPICS, topics, self.NOW_MS)["topicConfigTable"]
        assert (table["plain"]["perm"], table["plain"]["topicFilterType"]) == (6, "MULTI_TAG")
        assert "gone" not in table
        groups = {"forbiddenTable": {"g": {"t": 4}}, "subscriptionGroupTable": {"plain": {"retryQueueNums": 3}}}
        value = json_files.groups_value(GROUPS, groups, self.NOW_MS)
        assert value["forbiddenTable"] == {"g": {"t": 4}}
        assert value["subscriptionGroupTable"]["plain"]["retryQueueNums"] == 3

    def test_a_file_knows_whether_we_wrote_it_last(self):
        ours = json_files.offsets_value([("g", "t", 0, 12)], {}, self.NOW_MS)
        assert json_files.is_ours(ours)
        assert not json_files.is_ours({"dataVersion": {}, "offsetTable": {}})

    def test_what_rocketmq_wrote_itself(self):
        topics = json_files.topics_of(
            {
                "topicConfigTable": {
                    "TBW102": {"perm": 7, "readQueueNums": 8, "writeQueueNums": 8, "topicName": "TBW102"}
                }
            }
        )
        assert topics == [Topic("TBW102", 8, 8, 7)]
        groups = json_files.groups_of(
            {"subscriptionGroupTable": {"g": {"retryMaxTimes": 16, "groupRetryPolicy": {"type": "CUSTOMIZED"}}}}
        )
        assert groups == [Group("g")]
        assert json_files.offsets_of({"offsetTable": {"t@g": {"0": 12}, "odd": {"0": 1}}}) == [("g", "t", 0, 12)]
        assert json_files.topics_of({}) == json_files.groups_of({}) == json_files.offsets_of({}) == []
