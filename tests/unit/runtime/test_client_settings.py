"""What a server answers to Settings, by client type and language (client-protocol.md 2.3, 2.4)."""

from __future__ import annotations

from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2
from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime import client_settings
from razzo.v1 import config_pb2

Language = definition_pb2.Language
ClientType = definition_pb2.ClientType
LANGUAGES = [Language.Name(number) for number in Language.values()]
LIST_POLICY = config_pb2.RetryPolicy(delays_ms=[2_000, 4_500, 8_000])
CURVE_POLICY = config_pb2.RetryPolicy(
    exponential=config_pb2.RetryPolicy.Exponential(initial_ms=1_000, max_ms=5_000, multiplier=2.0)
)


def producer(language: str = "JAVA") -> definition_pb2.Settings:
    settings = definition_pb2.Settings(client_type=ClientType.PRODUCER)
    settings.user_agent.language = Language.Value(language)
    settings.publishing.topics.add(name="orders", resource_namespace="blue")
    settings.request_timeout.seconds = 3
    settings.access_point.addresses.add(host="ns", port=8081)
    return settings


def consumer(language: str = "JAVA") -> definition_pb2.Settings:
    settings = definition_pb2.Settings(client_type=ClientType.PUSH_CONSUMER)
    settings.user_agent.language = Language.Value(language)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add().topic.name = "orders"
    return settings


def group(policy: config_pb2.RetryPolicy | None = None, **values: Any) -> config_pb2.GroupConfig:
    return config_pb2.GroupConfig(name="g", retry_policy=policy, retry_max_times=values.pop("times", 16), **values)


def millis(durations: Any) -> list[int]:
    return [duration.seconds * 1000 + duration.nanos // 1_000_000 for duration in durations]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_producer_gets_an_exponential_policy_and_the_limits(language: str) -> None:
    answer = client_settings.answer(producer(language), None)
    policy = answer.backoff_policy
    assert policy.max_attempts == 3
    curve = policy.exponential_backoff
    assert (*millis([curve.initial, curve.max]), curve.multiplier) == (10, 1000, 2.0)
    assert answer.publishing.max_body_size == 4 << 20
    assert answer.publishing.validate_message_type
    assert answer.HasField("metric")
    assert not answer.metric.on


def test_what_the_client_said_of_itself_comes_back() -> None:
    asked = producer()
    answer = client_settings.answer(asked, None)
    for field in ("client_type", "access_point", "request_timeout", "user_agent"):
        assert getattr(answer, field) == getattr(asked, field), field
    assert list(answer.publishing.topics) == list(asked.publishing.topics)
    asked = consumer()
    answer = client_settings.answer(asked, None)
    assert list(answer.subscription.subscriptions) == list(asked.subscription.subscriptions)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("policy", [None, LIST_POLICY, CURVE_POLICY])
def test_consumers_get_the_kind_of_policy_that_their_language_understands(
    language: str, policy: config_pb2.RetryPolicy | None
) -> None:
    answer = client_settings.answer(consumer(language), group(policy))
    own = "exponential_backoff" if policy is CURVE_POLICY else "customized_backoff"
    expected = {"PYTHON": "customized_backoff", "NODE_JS": "exponential_backoff"}.get(language, own)
    assert answer.backoff_policy.WhichOneof("strategy") == expected


def test_consumers_get_everything_they_need() -> None:
    answer = client_settings.answer(consumer(), group(fifo=True, times=4))
    assert answer.backoff_policy.max_attempts == 5
    assert answer.subscription.fifo
    assert answer.subscription.receive_batch_size == 32
    assert millis([answer.subscription.long_polling_timeout]) == [20_000]
    assert answer.subscription.lite_subscription_quota == 2_000
    assert answer.subscription.max_lite_topic_size == 64
    assert not answer.metric.on


def test_an_unknown_group_gets_the_defaults() -> None:
    answer = client_settings.answer(consumer(), None)
    assert answer.backoff_policy.max_attempts == 17
    assert answer.subscription.HasField("fifo")
    assert not answer.subscription.fifo
    assert millis(answer.backoff_policy.customized_backoff.next) == list(limits.DELAY_LEVELS_MS)


def test_a_list_for_node_becomes_a_curve_between_its_ends() -> None:
    curve = client_settings.answer(consumer("NODE_JS"), group(LIST_POLICY)).backoff_policy.exponential_backoff
    assert millis([curve.initial, curve.max]) == [2_000, 8_000]
    assert curve.multiplier == pytest.approx(2.0)
    flat = config_pb2.RetryPolicy(delays_ms=[700])
    curve = client_settings.answer(consumer("NODE_JS"), group(flat)).backoff_policy.exponential_backoff
    assert (*millis([curve.initial, curve.max]), curve.multiplier) == (700, 700, 1.0)
    curve = client_settings.answer(consumer("NODE_JS"), None).backoff_policy.exponential_backoff
    assert (*millis([curve.initial, curve.max]), curve.multiplier) == (5_000, 7_200_000, 2.0)


def test_a_curve_for_python_becomes_a_list_of_its_points() -> None:
    policy = client_settings.answer(consumer("PYTHON"), group(CURVE_POLICY, times=5)).backoff_policy
    assert millis(policy.customized_backoff.next) == [1_000, 2_000, 4_000, 5_000, 5_000]
    none = client_settings.answer(consumer("PYTHON"), group(CURVE_POLICY, times=0)).backoff_policy
    assert none.max_attempts == 1
    assert len(none.customized_backoff.next) == 1, "clients need one entry at least"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (definition_pb2.Settings(), Code.BAD_REQUEST),
        (
            definition_pb2.Settings(
                client_type=ClientType.PUSH_CONSUMER, publishing=definition_pb2.Publishing()
            ),
            Code.UNRECOGNIZED_CLIENT_TYPE,
        ),
        (
            definition_pb2.Settings(client_type=ClientType.PRODUCER, subscription=definition_pb2.Subscription()),
            Code.UNRECOGNIZED_CLIENT_TYPE,
        ),
        (
            definition_pb2.Settings(
                publishing=definition_pb2.Publishing(
                    topics=[definition_pb2.Resource(name="t")] * (limits.PUBLISHED_TOPICS_PER_CLIENT_MAX + 1)
                )
            ),
            Code.BAD_REQUEST,
        ),
        (
            definition_pb2.Settings(
                publishing=definition_pb2.Publishing(), client_properties={"rocketmq.own": "1"}
            ),
            Code.INVALID_CLIENT_PROPERTIES,
        ),
    ],
)
def test_settings_that_nobody_can_work_with(settings: definition_pb2.Settings, code: Code) -> None:
    with pytest.raises(RequestRefused) as refused:
        client_settings.check(settings)
    assert refused.value.code is code


@pytest.mark.parametrize("kind", [*(ClientType.values())])
def test_every_client_type_is_taken_with_what_fits_it(kind: int) -> None:
    settings = producer() if kind in (ClientType.PRODUCER, ClientType.CLIENT_TYPE_UNSPECIFIED) else consumer()
    settings.client_type = kind
    client_settings.check(settings)
    assert client_settings.answer(settings, None).client_type == kind
