"""The health board: grpc.health.v1 by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from razzo.runtime import health
from razzo.runtime.health import HealthBoard
from razzo.runtime.status import CallRefused

Serving = health_pb2.HealthCheckResponse
WAIT_S = 5.0


def request(service: str = "") -> bytes:
    return health_pb2.HealthCheckRequest(service=service).SerializeToString()


class Watcher:
    def __init__(self) -> None:
        self.told: asyncio.Queue[int] = asyncio.Queue()

    async def write(self, message: bytes) -> None:
        self.told.put_nowait(health_pb2.HealthCheckResponse.FromString(message).status)

    async def next(self) -> int:
        return await asyncio.wait_for(self.told.get(), WAIT_S)


async def check(board: HealthBoard, service: str = "") -> int:
    call: Any = None
    return health_pb2.HealthCheckResponse.FromString(await board.check(request(service), call)).status


async def test_nothing_serves_until_it_is_said() -> None:
    board = HealthBoard("a.S")
    assert [await check(board, service) for service in ("", "a.S")] == [Serving.NOT_SERVING] * 2
    board.set_all(True)
    assert board.is_serving()
    board.set("a.S", False)
    assert [await check(board, service) for service in ("", "a.S")] == [Serving.SERVING, Serving.NOT_SERVING]


async def test_refusals() -> None:
    board = HealthBoard()
    with pytest.raises(CallRefused) as refused:
        await check(board, "nobody")
    assert refused.value.status is grpc.StatusCode.NOT_FOUND
    call: Any = None
    with pytest.raises(CallRefused) as refused:
        await board.check(b"\xff", call)
    assert refused.value.status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_watcher_is_told_of_every_change_and_ends_with_the_board() -> None:
    board, watcher = HealthBoard("a.S"), Watcher()
    call: Any = watcher
    task = asyncio.create_task(board.watch(request("a.S"), call))
    assert await watcher.next() == Serving.NOT_SERVING
    board.set("a.S", True)
    assert await watcher.next() == Serving.SERVING
    board.set("other", True)
    await board.close()
    assert await watcher.next() == Serving.NOT_SERVING, "no word about the other service"
    await asyncio.wait_for(task, WAIT_S)


async def test_a_service_may_come_later() -> None:
    board, watcher = HealthBoard(), Watcher()
    call: Any = watcher
    task = asyncio.create_task(board.watch(request("later"), call))
    assert await watcher.next() == Serving.SERVICE_UNKNOWN
    board.set("later", True)
    assert await watcher.next() == Serving.SERVING
    task.cancel()
    await asyncio.wait([task])


async def test_watchers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WATCHERS_MAX", 1)
    board, watcher = HealthBoard(), Watcher()
    call: Any = watcher
    task = asyncio.create_task(board.watch(request(), call))
    await watcher.next()
    with pytest.raises(CallRefused) as refused:
        await board.watch(request(), call)
    assert refused.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    task.cancel()
    await asyncio.wait([task])
    await board.close()
    await board.watch(request(), call)
    assert watcher.told.empty(), "a closed board ends a watch at once"
