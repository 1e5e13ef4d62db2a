"""Core: what a server answers to a client's Settings (field by field: client-protocol.md 2.3 and 2.4).

The answer is a copy of what the client sent with the server's say written over it. Retry policies differ by language,
because some clients understand one kind only: Python ignores an exponential one for consumers, Node a customized one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from apache.rocketmq.v2 import definition_pb2
from apache.rocketmq.v2.well_known import Duration
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.names import check_client_properties
from razzo.v1 import config_pb2

Language = definition_pb2.Language
ClientType = definition_pb2.ClientType

CONSUMER_TYPES = frozenset(
    {
        ClientType.PUSH_CONSUMER,
        ClientType.SIMPLE_CONSUMER,
        ClientType.PULL_CONSUMER,
        ClientType.LITE_PUSH_CONSUMER,
        ClientType.LITE_SIMPLE_CONSUMER,
    }
)


class Strategy(Enum):
    """The kind of a consumer's retry policy."""

    CUSTOMIZED = "customized"
    EXPONENTIAL = "exponential"


CONSUMER_STRATEGY: Mapping[int, Strategy] = {
    Language.PYTHON: Strategy.CUSTOMIZED,
    Language.NODE_JS: Strategy.EXPONENTIAL,
}
"""Languages that understand one kind only. All others get the kind that their group is configured with."""


def check(settings: definition_pb2.Settings) -> None:
    """Refuses Settings that no server can work with: neither publishing nor subscription, or a client type that
    contradicts it. RequestRefused."""
    kind = settings.WhichOneof("pub_sub")
    if kind is None:
        raise RequestRefused(Code.BAD_REQUEST, "settings carry neither publishing nor subscription")
    consumer = settings.client_type in CONSUMER_TYPES
    if (kind == "publishing" and consumer) or (kind == "subscription" and settings.client_type == ClientType.PRODUCER):
        name = ClientType.Name(settings.client_type)
        raise RequestRefused(Code.UNRECOGNIZED_CLIENT_TYPE, f"a {name} cannot have {kind} settings")
    if kind == "publishing":
        _check_count("topics", settings.publishing.topics, limits.PUBLISHED_TOPICS_PER_CLIENT_MAX)
    else:
        _check_count("subscriptions", settings.subscription.subscriptions, limits.SUBSCRIPTIONS_PER_CLIENT_MAX)
    check_client_properties(settings.client_properties.items())


def answer(settings: definition_pb2.Settings, group: config_pb2.GroupConfig | None) -> definition_pb2.Settings:
    """The Settings to send back. `group` is the consumer group's configuration; None gives the defaults."""
    reply = definition_pb2.Settings()
    reply.CopyFrom(settings)
    reply.metric.Clear()
    reply.metric.on = False
    reply.ClearField("backoff_policy")
    if settings.WhichOneof("pub_sub") == "publishing":
        reply.publishing.max_body_size = limits.MESSAGE_BODY_BYTES_MAX
        reply.publishing.validate_message_type = True
        reply.backoff_policy.CopyFrom(producer_policy())
        return reply
    reply.subscription.fifo = group is not None and group.fifo
    reply.subscription.receive_batch_size = limits.PUSH_BATCH_MESSAGES
    reply.subscription.long_polling_timeout.CopyFrom(_duration(limits.PUSH_POLL_MS))
    reply.subscription.lite_subscription_quota = limits.LITE_SUBSCRIPTION_QUOTA
    reply.subscription.max_lite_topic_size = limits.LITE_TOPIC_BYTES_MAX
    reply.backoff_policy.CopyFrom(consumer_policy(group, settings.user_agent.language))
    return reply


def producer_policy() -> definition_pb2.RetryPolicy:
    """Exponential for every language: Java and Node producers do not start with anything else."""
    policy = definition_pb2.RetryPolicy(max_attempts=limits.PRODUCER_ATTEMPTS)
    _fill_exponential(
        policy,
        limits.PRODUCER_BACKOFF_INITIAL_MS,
        limits.PRODUCER_BACKOFF_MS_MAX,
        limits.PRODUCER_BACKOFF_MULTIPLIER,
    )
    return policy


def consumer_policy(group: config_pb2.GroupConfig | None, language: int) -> definition_pb2.RetryPolicy:
    """The retry policy of a consumer group as a client of `language` understands it."""
    policy = definition_pb2.RetryPolicy(max_attempts=max_attempts(group))
    configured = group.retry_policy if group is not None else config_pb2.RetryPolicy()
    own = Strategy.EXPONENTIAL if configured.HasField("exponential") else Strategy.CUSTOMIZED
    strategy = CONSUMER_STRATEGY.get(language, own)
    if strategy is Strategy.CUSTOMIZED:
        waits = delays_ms(configured, policy.max_attempts)
        policy.customized_backoff.next.extend(_duration(wait_ms) for wait_ms in waits)
    elif own is Strategy.EXPONENTIAL:
        curve = configured.exponential
        _fill_exponential(policy, curve.initial_ms, curve.max_ms, curve.multiplier)
    else:
        _fill_exponential(policy, *_curve_through(configured.delays_ms))
    return policy


def max_attempts(group: config_pb2.GroupConfig | None) -> int:
    """Deliveries of one message in all, the first included."""
    return (group.retry_max_times if group is not None else limits.RETRY_TIMES_DEFAULT) + 1


def delays_ms(configured: config_pb2.RetryPolicy, attempts: int) -> Sequence[int]:
    """The waits before redeliveries, in order; the last repeats. An exponential policy is written out, one wait for
    each redelivery, at most `len(DELAY_LEVELS_MS)` of them."""
    if not configured.HasField("exponential"):
        return tuple(configured.delays_ms) or limits.DELAY_LEVELS_MS
    curve = configured.exponential
    waits = min(max(attempts - 1, 1), len(limits.DELAY_LEVELS_MS))
    return tuple(int(min(curve.max_ms, curve.initial_ms * max(curve.multiplier, 1.0) ** n)) for n in range(waits))


def _curve_through(delays: Sequence[int]) -> tuple[int, int, float]:
    """An exponential policy for a client that understands no list: from the list's first wait to its last, or the
    default when the group has no list."""
    if not delays:
        return limits.CONSUMER_BACKOFF_INITIAL_MS, limits.CONSUMER_BACKOFF_MS_MAX, limits.CONSUMER_BACKOFF_MULTIPLIER
    first, last = max(delays[0], 1), max(*delays, 1)
    steps = len(delays) - 1
    return first, last, (last / first) ** (1 / steps) if steps else 1.0


def _fill_exponential(policy: definition_pb2.RetryPolicy, initial_ms: int, max_ms: int, multiplier: float) -> None:
    policy.exponential_backoff.initial.CopyFrom(_duration(initial_ms))
    policy.exponential_backoff.max.CopyFrom(_duration(max_ms))
    policy.exponential_backoff.multiplier = multiplier


def _duration(ms: int) -> Duration:
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def _check_count(what: str, entries: Sequence[object], count_max: int) -> None:
    if len(entries) > count_max:
        raise RequestRefused(Code.BAD_REQUEST, f"a client names at most {count_max} {what}, not {len(entries)}")
