"""Topics and consumer groups as razzo.v1 messages, and back."""

from __future__ import annotations

from typing import cast

from razzo.broker.groups import ExponentialRetry, Group
from razzo.broker.topics import Topic, TopicType
from razzo.v1 import config_pb2


def topic_config(topic: Topic) -> config_pb2.TopicConfig:
    return config_pb2.TopicConfig(
        name=topic.name,
        read_queues=topic.read_queues,
        write_queues=topic.write_queues,
        permission=topic.permission,
        type=cast(config_pb2.TopicType, int(topic.type)),
        attributes=topic.attributes,
        order=topic.order,
        sys_flag=topic.sys_flag,
    )


def topic_of(config: config_pb2.TopicConfig) -> Topic:
    """A type this version does not know is taken as a topic without a type."""
    known = {int(kind) for kind in TopicType}
    return Topic(
        config.name,
        config.read_queues,
        config.write_queues,
        config.permission,
        TopicType(config.type) if config.type in known else TopicType.UNSPECIFIED,
        dict(config.attributes),
        config.order,
        config.sys_flag,
    )


def group_config(group: Group) -> config_pb2.GroupConfig:
    config = config_pb2.GroupConfig(
        name=group.name,
        fifo=group.fifo,
        retry_max_times=group.retry_max_times,
        consume_enabled=group.consume_enabled,
        lite_bind_topic=group.lite_bind_topic,
        attributes=group.attributes,
    )
    config.retry_policy.delays_ms.extend(group.retry_delays_ms)
    if group.exponential is not None:
        curve = config.retry_policy.exponential
        curve.initial_ms, curve.max_ms, curve.multiplier = group.exponential
    return config


def group_of(config: config_pb2.GroupConfig) -> Group:
    policy = config.retry_policy
    curve = policy.exponential
    return Group(
        config.name,
        config.fifo,
        config.retry_max_times,
        tuple(policy.delays_ms),
        ExponentialRetry(curve.initial_ms, curve.max_ms, curve.multiplier) if policy.HasField("exponential") else None,
        config.consume_enabled,
        config.lite_bind_topic,
        dict(config.attributes),
    )
