"""Well-formed gRPC with senseless contents on every RPC: a Status that refuses or a gRPC error, nothing stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from garbage.victim import TOPIC, Victim
from official.raw_client import UNLIMITED, message

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s

SERVICE = s.DESCRIPTOR.services_by_name["MessagingService"]
METHODS = {method.name: method for method in SERVICE.methods}
TIMEOUT_S = 20.0
SEED = 20267
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

METADATA = (("x-mq-client-id", "garbage"), ("x-mq-language", "GARBAGE"))

GOOD_CODES = {d.OK, d.MULTIPLE_RESULTS}


def ports(victim: Victim) -> Iterator[tuple[str, str]]:
    """The plaintext ports that serve MessagingService."""
    for name, (host, port) in victim.ports.items():
        if name in ("nameserver client.port", "broker client.port", "broker peer.port"):
            yield name, f"{host}:{port}"


def call(address: str, name: str, request: bytes) -> tuple[str, list[bytes]]:
    """The gRPC status name and the raw answers of one call."""
    method = METHODS[name]
    path = f"/{SERVICE.full_name}/{name}"
    with grpc.insecure_channel(address, options=UNLIMITED) as channel:
        try:
            if method.client_streaming:
                stream = channel.stream_stream(path)
                return "OK", list(stream(iter([request]), metadata=METADATA, timeout=TIMEOUT_S))
            if method.server_streaming:
                return "OK", list(channel.unary_stream(path)(request, metadata=METADATA, timeout=TIMEOUT_S))
            return "OK", [channel.unary_unary(path)(request, metadata=METADATA, timeout=TIMEOUT_S)]
        except grpc.RpcError as error:
            return error.code().name, []


def first_code(name: str, answers: list[bytes]) -> int:
    """The code of the first Status among the answers."""
    for answer in answers:
        decoded: Any = getattr(s, METHODS[name].output_type.name).FromString(answer)
        if decoded.HasField("status"):
            return int(decoded.status.code)
    raise AssertionError(f"{name} answered OK without any status")


NO_PROTOBUF = {
    "ones": b"\xff" * 64,
    "an endless field": b"\x0a\xff\xff\xff\xff\x0f",
    "a group that never ends": b"\x0b" * 32,
    "random": random.Random(SEED).randbytes(1_000),
}


@pytest.mark.parametrize("what", NO_PROTOBUF)
@pytest.mark.parametrize("name", METHODS)
def test_no_protobuf(victim: Victim, name: str, what: str) -> None:
    for port, address in ports(victim):
        status, answers = call(address, name, NO_PROTOBUF[what])
        assert status not in ("DEADLINE_EXCEEDED", "UNAVAILABLE"), (port, status)
        if status == "OK":
            assert first_code(name, answers) not in GOOD_CODES, port
    victim.assert_well()


GROUP = d.Resource(name="garbage-group")
PLACE = d.Resource(name=TOPIC)


def far_queue() -> d.MessageQueue:
    return d.MessageQueue(topic=PLACE, id=INT32_MAX, broker=d.Broker(name="no-such-broker", id=-1))


def with_properties(count: int, size: int) -> d.Message:
    return message(TOPIC, b"x", {f"p{i}": "v" * size for i in range(count)})


def receive(**fields: Any) -> s.ReceiveMessageRequest:
    queue = d.MessageQueue(topic=PLACE, id=0)
    made = s.ReceiveMessageRequest(group=GROUP, message_queue=queue, batch_size=1, **fields)
    made.invisible_duration.FromSeconds(30)
    return made


def acks(count: int) -> s.AckMessageRequest:
    entry = s.AckMessageEntry(message_id="m", receipt_handle="no-handle")
    return s.AckMessageRequest(group=GROUP, topic=PLACE, entries=[entry] * count)


def sends(*messages: d.Message) -> s.SendMessageRequest:
    return s.SendMessageRequest(messages=messages)


def change(handle: str, seconds: int) -> s.ChangeInvisibleDurationRequest:
    made = s.ChangeInvisibleDurationRequest(group=GROUP, topic=PLACE, receipt_handle=handle, message_id="m")
    made.invisible_duration.FromSeconds(seconds)
    return made


def lite(count: int) -> s.SyncLiteSubscriptionRequest:
    return s.SyncLiteSubscriptionRequest(topic=PLACE, group=GROUP, lite_topic_set=[f"l{i}" for i in range(count)])


def bad_filter() -> d.FilterExpression:
    return d.FilterExpression(type=d.SQL, expression="(" * 5_000 + "a = 1")


SENSELESS: dict[str, tuple[str, Any]] = {
    "100,000 empty messages": ("SendMessage", sends(*[d.Message()] * 100_000)),
    "no message": ("SendMessage", sends()),
    "a message without topic": ("SendMessage", sends(d.Message(body=b"x"))),
    "a body of 4 MiB and 1": ("SendMessage", sends(message(TOPIC, b"x" * ((4 << 20) + 1)))),
    "a body of 64 MiB": ("SendMessage", sends(message(TOPIC, bytes(64 << 20)))),
    "an empty body": ("SendMessage", sends(message(TOPIC, b""))),
    "129 properties": ("SendMessage", sends(with_properties(129, 1))),
    "100,000 properties": ("SendMessage", sends(with_properties(100_000, 1))),
    "1 MiB in one property": ("SendMessage", sends(with_properties(1, 1 << 20))),
    "two topics": ("SendMessage", sends(message(TOPIC, b"x"), message(f"{TOPIC}-2", b"x"))),
    "a path for a topic": ("SendMessage", sends(message("../../etc/passwd", b"x"))),
    "a system topic": ("SendMessage", sends(message("rmq_sys_razzo_state", b"x"))),
    "a topic of 1 MiB": ("QueryRoute", s.QueryRouteRequest(topic=d.Resource(name="t" * (1 << 20)))),
    "no topic": ("QueryRoute", s.QueryRouteRequest()),
    "a namespace of slashes": ("QueryRoute", s.QueryRouteRequest(topic=d.Resource(resource_namespace="//", name="t"))),
    "no assignment asked": ("QueryAssignment", s.QueryAssignmentRequest()),
    "a receive without group": ("ReceiveMessage", s.ReceiveMessageRequest(message_queue=far_queue())),
    "a filter of parentheses": ("ReceiveMessage", receive(filter_expression=bad_filter())),
    "a queue of no broker": ("ReceiveMessage", s.ReceiveMessageRequest(group=GROUP, message_queue=far_queue())),
    "an ack without handle": (
        "AckMessage",
        s.AckMessageRequest(group=GROUP, topic=PLACE, entries=[s.AckMessageEntry()]),
    ),
    "100,000 acks of nothing": ("AckMessage", acks(100_000)),
    "no acks": ("AckMessage", s.AckMessageRequest()),
    "a handle of 1 MiB": ("ChangeInvisibleDuration", change("h" * (1 << 20), 10)),
    "a negative time": ("ChangeInvisibleDuration", change("handle", -1)),
    "ten thousand years": ("ChangeInvisibleDuration", change("handle", 315_576_000_000)),
    "no dead letter": ("ForwardMessageToDeadLetterQueue", s.ForwardMessageToDeadLetterQueueRequest()),
    "a pull from nowhere": (
        "PullMessage",
        s.PullMessageRequest(group=GROUP, message_queue=far_queue(), offset=-INT64_MAX, batch_size=INT32_MAX),
    ),
    "an offset of the far end": (
        "UpdateOffset",
        s.UpdateOffsetRequest(group=GROUP, message_queue=far_queue(), offset=-1),
    ),
    "a position of nowhere": ("GetOffset", s.GetOffsetRequest(group=GROUP, message_queue=far_queue())),
    "an offset of nowhere": ("QueryOffset", s.QueryOffsetRequest(message_queue=far_queue(), query_offset_policy=99)),
    "no transaction": ("EndTransaction", s.EndTransactionRequest()),
    "a made-up transaction": (
        "EndTransaction",
        s.EndTransactionRequest(topic=PLACE, message_id="m", transaction_id="t" * 10_000, resolution=99),
    ),
    "a made-up recall": ("RecallMessage", s.RecallMessageRequest(topic=PLACE, recall_handle="\U0001f600" * 1_000)),
    "100,000 lite topics": ("SyncLiteSubscription", lite(100_000)),
}


@pytest.mark.parametrize("what", SENSELESS)
def test_senseless_requests_are_refused(victim: Victim, what: str) -> None:
    name, request = SENSELESS[what]
    encoded = request.SerializeToString()
    for port, address in ports(victim):
        status, answers = call(address, name, encoded)
        assert status not in ("DEADLINE_EXCEEDED", "UNAVAILABLE"), (port, status)
        if status == "OK":
            assert first_code(name, answers) not in GOOD_CODES, port
    victim.assert_well()


@pytest.mark.parametrize("batch_size", [0, -1, INT32_MAX], ids=["none", "negative", "all there are"])
def test_senseless_batch_sizes_never_overrun(victim: Victim, batch_size: int) -> None:
    """Refused, or answered with what the server hands out at most."""
    request = receive()
    request.batch_size = batch_size
    request.long_polling_timeout.FromMilliseconds(1)
    status, answers = call(dict(ports(victim))["broker client.port"], "ReceiveMessage", request.SerializeToString())
    assert status not in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "INTERNAL", "UNKNOWN"), status
    assert len(answers) <= 32 + 2
    victim.assert_serving()
    victim.remember_log()  # a receive with a number of its own makes the group and leases: that belongs in the log


def test_telemetry_without_sense_ends(victim: Victim) -> None:
    """Settings that are neither a producer's nor a consumer's end the stream with INVALID_ARGUMENT."""
    command = s.TelemetryCommand(settings=d.Settings(client_type=d.PRODUCER))
    for port, address in ports(victim):
        status, _ = call(address, "Telemetry", command.SerializeToString())
        assert status == "INVALID_ARGUMENT", port
    victim.assert_well()
