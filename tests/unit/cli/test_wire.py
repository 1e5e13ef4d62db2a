"""gRPC failures and business codes as exit codes and one line."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as pb
from razzo.cli import messaging, wire
from razzo.cli.exits import CommandFailed, Exit
from razzo.v1 import admin_pb2, admin_pb2_grpc


class Refusing(admin_pb2_grpc.ClusterAdminServicer):
    """Answers DeleteTopic with the gRPC status that the topic's name spells."""

    def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, context: grpc.ServicerContext
    ) -> admin_pb2.DeleteTopicResponse:
        if request.name != "OK":
            context.abort(grpc.StatusCode[request.name], "one\n two")
        return admin_pb2.DeleteTopicResponse()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    admin_pb2_grpc.add_ClusterAdminServicer_to_server(Refusing(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def delete(address: str, name: str, timeout_s: float = 5.0) -> None:
    with wire.channel(address) as channel:
        stub = admin_pb2_grpc.ClusterAdminStub(channel)
        wire.call(address, stub.DeleteTopic, admin_pb2.DeleteTopicRequest(name=name), timeout_s)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ("INVALID_ARGUMENT", Exit.REFUSED, "one two"),
        ("ALREADY_EXISTS", Exit.REFUSED, "one two"),
        ("NOT_FOUND", Exit.REFUSED, "one two"),
        ("FAILED_PRECONDITION", Exit.REFUSED, "one two"),
        ("UNAVAILABLE", Exit.UNREACHABLE, "ADDRESS: one two"),
        (
            "DEADLINE_EXCEEDED",
            Exit.UNREACHABLE,
            "no answer from ADDRESS within 5 s: it may or may not have taken effect",
        ),
        ("INTERNAL", Exit.FAULT, "ADDRESS failed: one two (INTERNAL)"),
        (
            "UNIMPLEMENTED",
            Exit.FAULT,
            "ADDRESS does not serve this: is it the client port of a Razzo nameserver?",
        ),
    ],
)
def test_failures(address: str, status: str, code: Exit, message: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        delete(address, status)
    assert (failed.value.code, failed.value.message) == (code, message.replace("ADDRESS", address))


def test_every_status_has_an_exit_code(address: str) -> None:
    for status in grpc.StatusCode:
        if status is grpc.StatusCode.OK:
            delete(address, "OK")
            continue
        with pytest.raises(CommandFailed) as failed:
            delete(address, status.name)
        assert failed.value.code in (Exit.REFUSED, Exit.UNREACHABLE, Exit.FAULT)


def test_nobody_there() -> None:
    with pytest.raises(CommandFailed, match=r"^nobody answers at 127\.0\.0\.1:1$") as failed:
        delete("127.0.0.1:1", "OK")
    assert failed.value.code is Exit.UNREACHABLE


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (40402, Exit.REFUSED, "x: no such topic (TOPIC_NOT_FOUND)"),
        (42900, Exit.REFUSED, "x: no such topic (TOO_MANY_REQUESTS)"),
        (50001, Exit.FAULT, "x: no such topic (INTERNAL_SERVER_ERROR)"),
        (30000, Exit.FAULT, "x: no such topic (MULTIPLE_RESULTS)"),
        (12345, Exit.FAULT, "x: no such topic (12345)"),
    ],
)
def test_business_codes(number: int, code: Exit, message: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        messaging.check(pb.Status(code=number, message="no such topic"), "x")  # type: ignore[arg-type]
    assert (failed.value.code, failed.value.message) == (code, message)
    messaging.check(pb.Status(code=pb.OK), "x")


def test_message_ids_are_version_1_and_unlike() -> None:
    ids = [bytes.fromhex(messaging.message_id()) for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert {(len(one), one[0], one[1] & 1) for one in ids} == {(17, 1, 1)}


def test_one_readable_queue_of_each_broker() -> None:
    def queue(broker: str, number: int, permission: pb.Permission) -> pb.MessageQueue:
        return pb.MessageQueue(id=number, broker=pb.Broker(name=broker), permission=permission)

    queues = [
        queue("a", 0, pb.WRITE),
        queue("a", 1, pb.READ),
        queue("a", 2, pb.READ_WRITE),
        queue("b", 0, pb.READ_WRITE),
    ]
    assert {(one.broker.name, one.id) for one in messaging.readable(queues, "t")} == {("a", 1), ("b", 0)}
    assert [(one.broker.name, one.id) for one in messaging.writable(queues, "t")] == [("a", 0), ("a", 2), ("b", 0)]
    with pytest.raises(CommandFailed, match="topic t takes no messages"):
        messaging.writable([queue("a", 0, pb.READ)], "t")
    with pytest.raises(CommandFailed, match="topic t gives no messages"):
        messaging.readable([queue("a", 0, pb.WRITE), queue("b", 0, pb.NONE)], "t")
