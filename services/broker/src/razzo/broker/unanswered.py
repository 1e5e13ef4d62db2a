"""Sends that were taken and not answered yet: what waits for the disk, of both ways in, under one bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from apache.rocketmq.v2 import service_pb2
from razzo.broker.broker import Broker
from razzo.door.methods import BatchCall
from razzo.runtime.requests import request_id_of
from razzo.runtime.status import status_of

NOT_FLUSHED = "stored, but not known to be on disk yet"


class Unanswered:
    """`messages_max` messages may wait for the disk at a time."""

    def __init__(self, broker: Broker, messages_max: int) -> None:
        self._broker = broker
        self._messages_max = messages_max
        self._tasks: set[asyncio.Task[None]] = set()
        self.messages = 0
        """Stored and not answered yet."""

    def has_room(self, messages: int) -> bool:
        return self.messages + messages <= self._messages_max

    def answer_when_flushed(
        self, calls: Iterable[BatchCall], messages: int, end: int, answer: Callable[[bool], None]
    ) -> None:
        """Calls `answer` once the log is on disk up to `end`, or with False when that is not known in time; refuses the
        calls when the disk failed."""
        self.messages += messages
        self.spawn(self._wait(calls, messages, end, answer))

    def spawn(self, body: Coroutine[Any, Any, None]) -> None:
        """Runs what `drain` waits for."""
        task = asyncio.get_running_loop().create_task(body)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Waits until every send that was taken is answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _wait(self, calls: Iterable[BatchCall], messages: int, end: int, answer: Callable[[bool], None]) -> None:
        try:
            flushed = await self._broker.wait_flushed(end)
        except Exception as error:
            for call in calls:
                refuse(call, error)
            return
        finally:
            self.messages -= messages
        answer(flushed)


def refuse(call: BatchCall, error: Exception) -> None:
    """Answers a send with the code that stands for an exception."""
    status = status_of(error, request_id_of(call))
    call.answer(service_pb2.SendMessageResponse(status=status).SerializeToString())
