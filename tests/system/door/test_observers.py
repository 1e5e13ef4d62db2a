"""What a door tells about its calls, and the authentication hook."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc
import grpc.aio
import pytest
from door.conftest import Door, OpenDoor
from door.probe import path, until

from razzo.door.methods import CallInfo, GrpcStatus, RpcError
from razzo.door.observers import AccessRecord, MethodCounts, Observers

STATUS = GrpcStatus


def counts(door: Door, method: str) -> MethodCounts:
    return door.server.method_counts()[path(method)]


async def finished(door: Door, method: str, calls: int) -> MethodCounts:
    await until(lambda: counts(door, method).finished == calls, f"{calls} calls of {method} are counted")
    return counts(door, method)


async def test_calls_are_counted_by_method_and_status(door: Door) -> None:
    channel = door.channel()
    for method in ("Fail", "FailBatch"):
        for status in (5, 5, 8):
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(path(method))(b"%d x" % status)
        counted = await finished(door, method, 3)
        assert (counted.started, counted.in_flight) == (3, 0)
        assert counted.by_status == {STATUS.NOT_FOUND: 2, STATUS.RESOURCE_EXHAUSTED: 1}
    for method in ("Echo", "EchoBatch"):
        await asyncio.gather(*(channel.unary_unary(path(method))(b"x") for _ in range(100)))
        counted = await finished(door, method, 100)
        assert counted.by_status == {STATUS.OK: 100}
        assert sum(counted.latency_buckets) == 100
        assert 0 < counted.latency_sum_s < 100
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.unary_unary(path("Crash"))(b"")
    assert (await finished(door, "Crash", 1)).by_status == {STATUS.INTERNAL: 1}


async def test_streams_are_counted_when_they_end(door: Door) -> None:
    channel = door.channel()
    chat = channel.stream_stream(path("Chat"))()
    await chat.write(b"x")
    assert await chat.read() == b"x"
    assert (counts(door, "Chat").started, counts(door, "Chat").in_flight) == (1, 1)
    await chat.done_writing()
    assert await chat.read() is grpc.aio.EOF
    counted = await finished(door, "Chat", 1)
    assert (counted.in_flight, counted.by_status) == (0, {STATUS.OK: 1})


async def test_latency_of_a_held_call_falls_into_its_bucket(door: Door) -> None:
    call = door.channel().unary_unary(path("HoldBatch"))(b"x")
    await door.probe.saw("HoldBatch held")
    assert counts(door, "HoldBatch").in_flight == 1
    await asyncio.sleep(0.07)  # the latency under test, not a wait for something
    door.probe.held[0].answer(b"y")
    assert await call == b"y"
    counted = await finished(door, "HoldBatch", 1)
    bucket = counted.latency_buckets.index(1)
    assert 2**bucket > 70_000
    assert counted.latency_sum_s * 1e6 < 2**bucket


@pytest.mark.parametrize("method", ["Wait", "HoldBatch"])
async def test_cancelled_call_and_passed_deadline_are_counted_as_such(door: Door, method: str) -> None:
    wire = await door.wire()
    answer = await wire.ask(path(method), b"", [("grpc-timeout", "50m")])
    assert answer.over
    for held in door.probe.held:
        held.answer(b"too late")
    counted = await finished(door, method, 1)
    assert (counted.in_flight, counted.by_status) == (0, {STATUS.DEADLINE_EXCEEDED: 1})
    channel = door.channel()
    call = channel.unary_unary(path(method))(b"")
    await until(lambda: counts(door, method).started == 2, "the second call has begun")
    call.cancel()
    await until(lambda: counts(door, method).in_flight == 0 or len(door.probe.held) == 2, "the cancel arrives")
    assert await channel.unary_unary(path("Echo"))(b"x") == b"x"
    for held in door.probe.held[1:]:
        held.answer(b"nobody is there")
    counted = await finished(door, method, 2)
    assert counted.by_status[STATUS.CANCELLED] == 1


async def test_counting_may_be_off(open_door: OpenDoor) -> None:
    door = await open_door(observers=Observers(count_calls=False))
    assert await door.channel().unary_unary(path("EchoBatch"))(b"x") == b"x"
    assert door.server.method_counts() == {}


async def test_snapshot_does_not_change_afterwards(door: Door) -> None:
    call = door.channel().unary_unary(path("Echo"))
    await call(b"x")
    before = await finished(door, "Echo", 1)
    await call(b"x")
    await finished(door, "Echo", 2)
    assert (before.started, before.by_status, sum(before.latency_buckets)) == (1, {STATUS.OK: 1}, 1)


def gate(call: CallInfo) -> None:
    if call.header("authorization") != "let me in":
        raise RpcError(GrpcStatus.UNAUTHENTICATED, f"who calls {call.path}?")


@pytest.mark.parametrize("method", ["Echo", "EchoBatch", "Count", "Chat"])
async def test_authentication_hook_comes_before_the_handler(open_door: OpenDoor, method: str) -> None:
    door = await open_door(observers=Observers(authenticate=gate))
    channel = door.channel()

    async def attempt(metadata: tuple[tuple[str, str], ...]) -> grpc.aio.Call:
        if method == "Chat":
            call = channel.stream_stream(path(method))(metadata=metadata)
            await call.done_writing()
        elif method == "Count":
            call = channel.unary_stream(path(method))(b"1 1", metadata=metadata)
        else:
            call = channel.unary_unary(path(method))(b"1 1", metadata=metadata)
        with suppress(grpc.aio.AioRpcError):
            await (anext(aiter(call), None) if method in ("Count", "Chat") else call)
            await (anext(aiter(call), None) if method in ("Count", "Chat") else call)
        return call

    refused = await attempt(())
    assert await refused.code() is grpc.StatusCode.UNAUTHENTICATED
    assert await refused.details() == f"who calls {path(method)}?"
    assert (door.probe.batches, door.probe.notes) == ([], {})
    assert await (await attempt((("authorization", "let me in"),))).code() is grpc.StatusCode.OK
    counted = await finished(door, method, 2)
    assert counted.by_status == {STATUS.UNAUTHENTICATED: 1, STATUS.OK: 1}


async def test_access_log_sees_every_nth_call(open_door: OpenDoor) -> None:
    records: list[AccessRecord] = []
    door = await open_door(observers=Observers(access_log=records.append, access_log_every=5))
    call = door.channel().unary_unary(path("EchoBatch"))
    for _ in range(4):
        await call(b"x")
    await finished(door, "EchoBatch", 4)
    assert records == []
    for _ in range(21):
        await call(b"x")
    await finished(door, "EchoBatch", 25)
    assert len(records) == 5


@pytest.mark.parametrize("method", ["Echo", "EchoBatch", "Fail", "FailBatch", "Count", "Raw"])
async def test_access_record_tells_the_call(open_door: OpenDoor, method: str) -> None:
    records: list[AccessRecord] = []
    door = await open_door(observers=Observers(access_log=records.append))
    channel = door.channel()
    kind = channel.unary_stream if method in ("Count", "Raw") else channel.unary_unary
    call = kind(path(method))(b"5 100")
    if method in ("Count", "Raw"):
        assert [len(message) async for message in call] == [102] * 5
    await call.code()
    await until(lambda: len(records) == 1, "the access record")
    record = records[0]
    assert (record.path, record.secure, record.request_bytes) == (path(method), False, 5)
    assert record.peer.startswith("ipv4:127.0.0.1:")
    assert record.duration_s >= 0
    failed = method.startswith("Fail")
    assert record.status is (STATUS.NOT_FOUND if failed else STATUS.OK)
    expected = {"Echo": 5, "EchoBatch": 5, "Count": 510, "Raw": 510}.get(method, 0)
    assert record.response_bytes == expected
