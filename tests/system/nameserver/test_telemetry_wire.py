"""Telemetry of a real nameserver: Settings are answered as a broker would, and brokers hear of consumer groups."""

from __future__ import annotations

import grpc
import pytest
from nameserver.nameserver_process import Client, NameserverProcess, resource
from nameserver.scripted_broker import ScriptedBroker, topic

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol import methods
from razzo.protocol.codes import Code
from razzo.v1 import config_pb2

Language = definition_pb2.Language


def consumer(language: definition_pb2.Language = Language.JAVA) -> service_pb2.TelemetryCommand:
    settings = definition_pb2.Settings(
        client_type=definition_pb2.ClientType.PUSH_CONSUMER,
        user_agent=definition_pb2.UA(language=language),
        subscription=definition_pb2.Subscription(
            group=resource("g"),
            subscriptions=[
                definition_pb2.SubscriptionEntry(topic=resource("orders")),
                definition_pb2.SubscriptionEntry(topic=resource("unknown-topic")),
            ],
        ),
    )
    return service_pb2.TelemetryCommand(settings=settings)


def producer(language: definition_pb2.Language = Language.JAVA) -> service_pb2.TelemetryCommand:
    settings = definition_pb2.Settings(
        client_type=definition_pb2.ClientType.PRODUCER,
        user_agent=definition_pb2.UA(language=language),
        publishing=definition_pb2.Publishing(topics=[resource("orders")]),
    )
    return service_pb2.TelemetryCommand(settings=settings)


async def test_headers_come_before_any_request(client: Client) -> None:
    stream = client.messaging.Telemetry(metadata=client.metadata, timeout=10)
    await stream.initial_metadata()
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


async def test_settings_are_answered_each_time(client: Client) -> None:
    stream = client.messaging.Telemetry(metadata=client.metadata, timeout=10)
    for _ in range(2):
        await stream.write(producer())
        answer = await stream.read()
        assert answer.status.code == Code.OK
        assert answer.settings.publishing.max_body_size == 4 << 20
        assert answer.settings.backoff_policy.HasField("exponential_backoff")
    stream.cancel()


async def test_node_clients_are_answered_twice(client: Client) -> None:
    stream = client.messaging.Telemetry(metadata=client.metadata, timeout=10)
    await stream.write(producer(Language.NODE_JS))
    first = await stream.read()
    assert await stream.read() == first, "the same again, without a second question"
    stream.cancel()


async def test_settings_carry_the_group_as_the_brokers_have_it_and_tell_them_of_it(
    nameserver: NameserverProcess, client: Client
) -> None:
    group = config_pb2.GroupConfig(name="g", fifo=True, retry_max_times=4, consume_enabled=True)
    async with (
        ScriptedBroker("a", topic("orders"), groups=(group,)) as broker,
        ScriptedBroker("b", topic("else")) as other,
    ):
        await broker.start(nameserver.peer_address)
        await other.start(nameserver.peer_address)
        stream = client.messaging.Telemetry(metadata=client.metadata, timeout=10)
        await stream.write(consumer())
        answer = await stream.read()
        assert answer.settings.subscription.fifo
        assert answer.settings.backoff_policy.max_attempts == 5
        told = broker.of(methods.QUERY_ASSIGNMENT)
        asked = [service_pb2.QueryAssignmentRequest.FromString(call.request) for call in told]
        assert [(ask.topic.name, ask.group.name) for ask in asked] == [("orders", "g")]
        assert told[0].metadata["x-mq-client-id"] == "client@1"
        assert not other.of(methods.QUERY_ASSIGNMENT)
        await stream.write(consumer())
        await stream.read()
        assert len(broker.of(methods.QUERY_ASSIGNMENT)) == 1
        stream.cancel()


@pytest.mark.parametrize(
    "command",
    [
        service_pb2.TelemetryCommand(settings=definition_pb2.Settings()),
        service_pb2.TelemetryCommand(
            settings=definition_pb2.Settings(
                client_type=definition_pb2.ClientType.PRODUCER, subscription=definition_pb2.Subscription()
            )
        ),
        service_pb2.TelemetryCommand(
            settings=definition_pb2.Settings(
                publishing=definition_pb2.Publishing(topics=[resource("no spaces")])
            )
        ),
    ],
    ids=["nothing", "contradiction", "illegal topic"],
)
async def test_settings_that_nobody_can_work_with_end_the_stream(
    client: Client, command: service_pb2.TelemetryCommand
) -> None:
    stream = client.messaging.Telemetry(metadata=client.metadata, timeout=10)
    await stream.write(command)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream_without_client_id_is_told_so(client: Client) -> None:
    stream = client.messaging.Telemetry(timeout=10)
    assert (await stream.read()).status.code == Code.CLIENT_ID_REQUIRED
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
