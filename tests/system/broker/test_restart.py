"""What is there after a stop, after a crash, and for Apache: topics, groups, positions, leases, handles."""

from __future__ import annotations

import json
import shutil

import pytest
from broker.in_process import Code, TopicType, crash_copy, eventually, running

from razzo.broker.settings import FlushChoice
from razzo.protocol import methods
from razzo.runtime.lifecycle import Lifecycle, StartFailed
from razzo.v1 import admin_pb2

T, G = "orders", "billing"


async def fill(broker):
    """A topic and a group; of six messages two are done, two are out, two wait. The messages that are out."""
    client = broker.client("c1")
    await broker.admin().topic(T)
    await broker.admin().group(G, retry_max_times=3)
    await client.subscribe(T, G)
    await client.send(*(client.message(T, b"%d" % n) for n in range(6)))
    messages = await client.take(T, G, batch=4)
    assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
    await client.ack_ok(T, G, messages[0], messages[2])
    return [messages[1], messages[3]]


async def check(broker, out):
    """What `fill` left is all there."""
    client, admin = broker.client("c1"), broker.admin()
    (group,) = (await admin.call(methods.LIST_GROUPS, admin_pb2.ListGroupsRequest())).groups
    assert (group.group.name, group.group.retry_max_times) == (G, 3)
    (position,) = group.positions
    assert (position.committed_offset, position.next_offset, position.outstanding) == (1, 4, 2)
    assert [message.body for message in await client.take(T, G)] == [b"4", b"5"]
    await client.ack_ok(T, G, out[0])  # handles live on
    await client.nack(T, G, out[1])
    (again,) = await client.take(T, G)
    assert (again.body, again.system_properties.delivery_attempt) == (b"3", 2)
    await client.ack_ok(T, G, again)


async def test_after_a_clean_stop(tmp_path):
    async with running(tmp_path / "data") as broker:
        out = await fill(broker)
    async with running(tmp_path / "data") as broker:
        await check(broker, out)


@pytest.mark.parametrize("flush_mode", list(FlushChoice))
async def test_after_a_crash(tmp_path, flush_mode):
    async with running(tmp_path / "data", flush_mode=flush_mode) as broker:
        out = await fill(broker)
        copy = crash_copy(tmp_path / "data", tmp_path / "copy")
    async with running(copy) as broker:
        await check(broker, out)


async def test_after_a_crash_behind_a_snapshot(tmp_path):
    """Snapshots every few records, and the log goes on after the last one."""
    async with running(tmp_path / "data", snapshot_records=2, position_file_interval_s=0.1) as broker:
        out = await fill(broker)
        snapshot = tmp_path / "data/config/razzo/snapshot.bin"

        async def has_topic():
            return T.encode() in snapshot.read_bytes()

        await eventually(has_topic)
        client = broker.client("c1")
        await client.subscribe(T, "late-group")
        copy = crash_copy(tmp_path / "data", tmp_path / "copy")
    async with running(copy) as broker:
        admin = broker.admin()
        assert [each.next_offset for each in await admin.positions("late-group", T)] == [6]
        await admin.call(methods.DELETE_GROUP, admin_pb2.DeleteGroupRequest(name="late-group"))
        await check(broker, out)


@pytest.mark.parametrize("damage", ["gone", "cut", "bit"])
async def test_without_a_good_snapshot_the_log_tells_all(tmp_path, damage):
    async with running(tmp_path / "data") as broker:
        out = await fill(broker)
    snapshot = tmp_path / "data/config/razzo/snapshot.bin"
    content = snapshot.read_bytes()
    if damage == "gone":
        snapshot.unlink()
    elif damage == "cut":
        snapshot.write_bytes(content[:-1])
    else:
        snapshot.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    async with running(tmp_path / "data") as broker:
        await check(broker, out)


async def test_several_lives(tmp_path):
    """Positions and messages stay right over stops and crashes in turn."""
    data = tmp_path / "life-0"
    async with running(data) as broker:
        await broker.admin().topic(T)
        await broker.client().subscribe(T, G)
    expected = []
    for life in range(1, 6):
        async with running(data) as broker:
            client = broker.client()
            await client.send(*(client.message(T, b"%d-%d" % (life, n)) for n in range(3)))
            expected += [b"%d-%d" % (life, n) for n in range(3)]
            (message,) = await client.take(T, G, batch=1)
            assert message.body == expected.pop(0)
            await client.ack_ok(T, G, message)
            if life % 2:
                crashed = tmp_path / f"life-{life}"
                crash_copy(data, crashed)
        if life % 2:
            data = crashed
    async with running(data) as broker:
        assert [message.body for message in await broker.client().take(T, G)] == expected


async def test_a_message_is_due_when_its_time_passed_while_the_broker_was_down(tmp_path):
    async with running(tmp_path / "data") as broker:
        (first, second) = await fill(broker)
        client = broker.client()
        await client.nack(T, G, first, 0.2)
        await client.ack_ok(T, G, second)
    async with running(tmp_path / "data") as broker:
        client = broker.client()
        attempts = {}

        async def all_came():
            for message in await client.take(T, G):
                attempts[message.body] = message.system_properties.delivery_attempt
            return len(attempts) == 3

        await eventually(all_came)
        assert attempts == {b"1": 2, b"4": 1, b"5": 1}


async def test_topic_types_and_deletions_stay(tmp_path):
    async with running(tmp_path / "data") as broker:
        admin = broker.admin()
        await admin.topic("ordered", kind=TopicType.FIFO, queues=3)
        await admin.topic("doomed")
        await admin.group("doomed-group")
        await admin.call(methods.DELETE_TOPIC, admin_pb2.DeleteTopicRequest(name="doomed"))
        await admin.call(methods.DELETE_GROUP, admin_pb2.DeleteGroupRequest(name="doomed-group"))
        copy = crash_copy(tmp_path / "data", tmp_path / "copy")
    for data in (tmp_path / "data", copy):
        async with running(data) as broker:
            admin = broker.admin()
            listed = (await admin.call(methods.LIST_TOPICS, admin_pb2.ListTopicsRequest())).topics
            assert [(each.topic.name, each.topic.type, each.topic.read_queues) for each in listed] == [
                ("ordered", TopicType.FIFO, 3)
            ]
            assert not (await admin.call(methods.LIST_GROUPS, admin_pb2.ListGroupsRequest())).groups


async def test_the_json_files_hold_the_same(tmp_path):
    async with running(tmp_path / "data") as broker:
        await fill(broker)
        await broker.admin().topic("ordered", kind=TopicType.FIFO, queues=3)
    config = tmp_path / "data" / "config"
    topics = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    assert topics["ordered"]["attributes"] == {"message.type": "FIFO"}
    assert (topics[T]["readQueueNums"], topics[T]["perm"]) == (1, 6)
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert groups[G]["retryMaxTimes"] == 3
    offsets = json.loads((config / "consumerOffset.json").read_text())["offsetTable"]
    assert offsets[f"{T}@{G}"] == {"0": 1}


async def test_a_store_with_only_json_files_is_taken_over(tmp_path):
    """As Apache leaves one: messages in the log, everything else in config/*.json."""
    async with running(tmp_path / "data") as broker:
        await broker.admin().topic("ordered", kind=TopicType.FIFO, queues=3)
        client = broker.client()
        await broker.admin().topic(T)
        await client.subscribe(T, G)
    data = tmp_path / "apache"
    (data / "config").mkdir(parents=True)
    for name in ("topics", "subscriptionGroup", "consumerOffset"):
        shutil.copy(tmp_path / f"data/config/{name}.json", data / "config")
    async with running(data) as broker:
        client, admin = broker.client(), broker.admin()
        listed = (await admin.call(methods.LIST_TOPICS, admin_pb2.ListTopicsRequest())).topics
        assert [each.topic.name for each in listed] == ["ordered", T]
        await client.send_ok(T, b"m")
        assert [message.body for message in await client.take(T, G)] == [b"m"]


async def test_the_data_directory_keeps_the_name(tmp_path):
    async with running(tmp_path / "data", broker_name="first"):
        pass
    async with running(tmp_path / "data", broker_name="") as broker:
        assert broker.ready["name"] == "first"
    with pytest.raises(StartFailed, match="belongs to broker 'first'"):
        await _start(tmp_path / "data", "second")


async def _start(data, name):
    from broker.in_process import RunningBroker

    broker = RunningBroker(data, broker_name=name)
    try:
        await broker.start()
    finally:
        assert isinstance(broker.life, Lifecycle)
        await broker.stop()


async def test_sends_are_answered_when_they_are_on_disk(tmp_path):
    """In sync mode whatever was answered is in the copy of a crash."""
    async with running(tmp_path / "data", flush_mode=FlushChoice.SYNC) as broker:
        client = broker.client()
        await broker.admin().topic(T)
        await client.subscribe(T, G)
        for n in range(20):
            assert (await client.send_ok(T, b"%d" % n)).status.code == Code.OK
        copy = crash_copy(tmp_path / "data", tmp_path / "copy")
    async with running(copy) as broker:
        assert len(await broker.client().take(T, G)) == 20
