"""Topics, consumer groups and positions in the shapes of RocketMQ's config files, so that Apache opens the store and we
open one that Apache wrote (store-and-semantics.md 1.1: topics.json, subscriptionGroup.json, consumerOffset.json).

Pure: the tables' contents in, the JSON value out, and back. What a file says of a topic or a group beyond our settings
is kept when it is written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from razzo.broker.groups import ExponentialRetry, Group
from razzo.broker.topics import PERMISSION_READ, PERMISSION_WRITE, Topic, TopicType

TOPICS = "topics"
GROUPS = "subscriptionGroup"
OFFSETS = "consumerOffset"

OURS = "writtenBy"
_RAZZO = "razzo"
"""A member that Apache ignores and leaves out when it writes the file anew: a file without it is not our last word."""

MESSAGE_TYPE_ATTRIBUTE = "message.type"
"""The topic attribute in which RocketMQ keeps a topic's type."""


def is_ours(value: Mapping[str, Any]) -> bool:
    """Whether Razzo was the last to write the file."""
    return value.get(OURS) == _RAZZO


def next_version(former: Mapping[str, Any], now_ms: int) -> dict[str, int]:
    """The data version that follows the one in the former content of a file."""
    version = former.get("dataVersion") or {}
    counter, state = int(version.get("counter", 0)), int(version.get("stateVersion", 0))
    return {"counter": counter + 1, "stateVersion": state, "timestamp": now_ms}


def topics_value(topics: Iterable[Topic], former: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """`former` is the content so far: what it says beyond our settings of a topic is kept."""
    table = {}
    entries = former.get("topicConfigTable") or {}
    for topic in topics:
        attributes = dict(topic.attributes)
        if topic.type not in (TopicType.NORMAL, TopicType.UNSPECIFIED):
            attributes[MESSAGE_TYPE_ATTRIBUTE] = topic.type.name
        table[topic.name] = {
            "topicFilterType": "SINGLE_TAG",
            **(entries.get(topic.name) or {}),
            "attributes": attributes,
            "order": topic.order,
            "perm": topic.permission,
            "readQueueNums": topic.read_queues,
            "topicName": topic.name,
            "topicSysFlag": topic.sys_flag,
            "writeQueueNums": topic.write_queues,
        }
    return {OURS: _RAZZO, "dataVersion": next_version(former, now_ms), "topicConfigTable": table}


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


_GROUP_DEFAULTS: Mapping[str, Any] = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeFromMinEnable": True,
    "consumeTimeoutMinute": 15,
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""Settings of a group that mean nothing here."""


def groups_value(groups: Iterable[Group], former: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """`former` as for topics."""
    entries = former.get("subscriptionGroupTable") or {}
    table = {
        group.name: {
            **_GROUP_DEFAULTS,
            **(entries.get(group.name) or {}),
            "attributes": dict(group.attributes),
            "consumeEnable": group.consume_enabled,
            "consumeMessageOrderly": group.fifo,
            "groupName": group.name,
            "groupRetryPolicy": _retry_value(group),
            "retryMaxTimes": group.retry_max_times,
        }
        for group in groups
    }
    return {
        OURS: _RAZZO,
        "dataVersion": next_version(former, now_ms),
        "forbiddenTable": former.get("forbiddenTable") or {},
        "subscriptionGroupTable": table,
    }


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


def offsets_value(
    positions: Iterable[tuple[str, str, int, int]], former: Mapping[str, Any], now_ms: int
) -> dict[str, Any]:
    """`positions` are (group, topic, queue id, lowest offset that is not acknowledged)."""
    table: dict[str, dict[str, int]] = {}
    for group, topic, queue_id, floor in positions:
        table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = floor
    return {OURS: _RAZZO, "dataVersion": next_version(former, now_ms), "offsetTable": table}


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
