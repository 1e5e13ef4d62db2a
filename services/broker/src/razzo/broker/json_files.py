"""Topics, consumer groups and positions in the shapes of RocketMQ's config files, so that Apache opens the store and we
open one that Apache wrote (store-and-semantics.md 1.1: topics.json, subscriptionGroup.json, consumerOffset.json).

Pure: the tables' contents in, the JSON value out, and back. Unknown members of a file are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from razzo.broker.groups import ExponentialRetry, Group
from razzo.broker.topics import PERMISSION_READ, PERMISSION_WRITE, Topic, TopicType

TOPICS = "topics"
GROUPS = "subscriptionGroup"
OFFSETS = "consumerOffset"

MESSAGE_TYPE_ATTRIBUTE = "message.type"
"""The topic attribute in which RocketMQ keeps a topic's type."""


def data_version(counter: int, now_ms: int) -> dict[str, int]:
    return {"counter": counter, "stateVersion": 0, "timestamp": now_ms}


def topics_value(topics: Iterable[Topic], version: Mapping[str, int]) -> dict[str, Any]:
    table = {}
    for topic in topics:
        attributes = dict(topic.attributes)
        if topic.type not in (TopicType.NORMAL, TopicType.UNSPECIFIED):
            attributes[MESSAGE_TYPE_ATTRIBUTE] = topic.type.name
        table[topic.name] = {
            "attributes": attributes,
            "order": topic.order,
            "perm": topic.permission,
            "readQueueNums": topic.read_queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic.name,
            "topicSysFlag": topic.sys_flag,
            "writeQueueNums": topic.write_queues,
        }
    return {"dataVersion": dict(version), "topicConfigTable": table}


def topics_of(value: Mapping[str, Any]) -> list[Topic]:
    """System topics too: what RocketMQ made stays in the file for it."""
    topics = []
    for name, entry in value.get("topicConfigTable", {}).items():
        attributes = {str(key): str(text) for key, text in (entry.get("attributes") or {}).items()}
        kind = attributes.pop(MESSAGE_TYPE_ATTRIBUTE, "NORMAL").upper()
        topics.append(
            Topic(
                name,
                int(entry.get("readQueueNums", 16)),
                int(entry.get("writeQueueNums", 16)),
                int(entry.get("perm", PERMISSION_READ | PERMISSION_WRITE)),
                TopicType[kind] if kind in TopicType.__members__ else TopicType.NORMAL,
                attributes,
                bool(entry.get("order", False)),
                int(entry.get("topicSysFlag", 0)),
            )
        )
    return topics


def groups_value(groups: Iterable[Group], version: Mapping[str, int]) -> dict[str, Any]:
    table = {
        group.name: {
            "attributes": dict(group.attributes),
            "brokerId": 0,
            "consumeBroadcastEnable": True,
            "consumeEnable": group.consume_enabled,
            "consumeFromMinEnable": True,
            "consumeMessageOrderly": group.fifo,
            "consumeTimeoutMinute": 15,
            "groupName": group.name,
            "groupRetryPolicy": _retry_value(group),
            "groupSysFlag": 0,
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": group.retry_max_times,
            "retryQueueNums": 1,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        for group in groups
    }
    return {"dataVersion": dict(version), "forbiddenTable": {}, "subscriptionGroupTable": table}


def groups_of(value: Mapping[str, Any]) -> list[Group]:
    return [
        Group(
            name,
            bool(entry.get("consumeMessageOrderly", False)),
            max(0, int(entry.get("retryMaxTimes", 16))),
            tuple(
                int(wait)
                for wait in ((entry.get("groupRetryPolicy") or {}).get("customizedRetryPolicy") or {}).get("next", ())
            ),
            _exponential_of(entry.get("groupRetryPolicy") or {}),
            bool(entry.get("consumeEnable", True)),
            attributes={str(key): str(text) for key, text in (entry.get("attributes") or {}).items()},
        )
        for name, entry in value.get("subscriptionGroupTable", {}).items()
    ]


def offsets_value(positions: Iterable[tuple[str, str, int, int]], version: Mapping[str, int]) -> dict[str, Any]:
    """`positions` are (group, topic, queue id, lowest offset that is not acknowledged)."""
    table: dict[str, dict[str, int]] = {}
    for group, topic, queue_id, floor in positions:
        table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = floor
    return {"dataVersion": dict(version), "offsetTable": table}


def offsets_of(value: Mapping[str, Any]) -> list[tuple[str, str, int, int]]:
    """(group, topic, queue id, next offset) of every entry."""
    positions = []
    for key, queues in value.get("offsetTable", {}).items():
        topic, separator, group = key.rpartition("@")
        if separator:
            positions += [(group, topic, int(queue_id), int(offset)) for queue_id, offset in queues.items()]
    return positions


def _retry_value(group: Group) -> dict[str, Any]:
    if group.exponential is not None:
        curve = group.exponential
        return {
            "exponentialRetryPolicy": {
                "initial": curve.initial_ms,
                "max": curve.max_ms,
                "multiplier": round(curve.multiplier),
            },
            "type": "EXPONENTIAL",
        }
    if group.retry_delays_ms:
        return {"customizedRetryPolicy": {"next": list(group.retry_delays_ms)}, "type": "CUSTOMIZED"}
    return {"type": "CUSTOMIZED"}


def _exponential_of(policy: Mapping[str, Any]) -> ExponentialRetry | None:
    if policy.get("type") != "EXPONENTIAL":
        return None
    curve = policy.get("exponentialRetryPolicy") or {}
    return ExponentialRetry(
        int(curve.get("initial", 5_000)), int(curve.get("max", 7_200_000)), float(curve.get("multiplier", 2))
    )
