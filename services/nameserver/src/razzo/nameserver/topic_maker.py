"""Topics that a client asks for and that are not there: wait for brokers after a start, or make the topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from razzo.nameserver.broker_calls import BrokerCalls
from razzo.nameserver.cluster import Cluster
from razzo.protocol import methods
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RazzoError
from razzo.runtime.logs import fields
from razzo.runtime.routes import PERMISSION_READ, PERMISSION_WRITE
from razzo.runtime.status import PeerFailed, grpc_number
from razzo.v1 import admin_pb2, config_pb2

log = logging.getLogger(__name__)

IN_MAKING_MAX = 256
"""Topics made at once; the client that wants one more is told to wait (42900)."""
MAKE_S_MAX = 2.0
"""For all brokers to make a topic, and for this nameserver to hear of it. Clients wait 3 s for a route."""
ANSWER_RESERVE_S = 0.5
ALREADY_EXISTS = 6
"""gRPC's number: another nameserver, or a broker on its own, was faster."""


@dataclass(frozen=True, slots=True)
class MakerRules:
    """`create`: make unknown topics, with `queues` queues a broker. `settle_until_ms`: until then (the clock's time) an
    unknown topic may only mean that its brokers have not registered yet."""

    create: bool
    queues: int
    settle_until_ms: int


class TopicMaker:
    """Used on one event loop."""

    def __init__(
        self, cluster: Cluster, brokers: BrokerCalls, rules: MakerRules, clock_ms: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._rules = rules
        self._clock_ms = clock_ms
        self._in_making: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, topic: str, remaining_s: float | None) -> None:
        """Returns when the topic is known, or will not become so. RazzoError when it could not be made."""
        await self.settle(topic, remaining_s)
        task = self._in_making.get(topic)  # until it is done, some brokers have the topic and others do not
        if task is None:
            if not self._rules.create or self._is_known(topic) or not self._cluster.book.masters():
                return
            if len(self._in_making) >= IN_MAKING_MAX:
                raise BrokerFault(Code.TOO_MANY_REQUESTS, f"{IN_MAKING_MAX} topics are being made")
            task = self._in_making[topic] = asyncio.create_task(self._make(topic))
            task.add_done_callback(lambda done: self._made(topic, done))
        await asyncio.shield(task)  # others wait for the same one: a client that leaves must not end it

    async def settle(self, topic: str, remaining_s: float | None) -> None:
        """Waits for an unknown topic while this nameserver is fresh."""
        settle_s = (self._rules.settle_until_ms - self._clock_ms()) / 1000
        if settle_s > 0 and not self._is_known(topic):
            if remaining_s is not None:
                settle_s = min(settle_s, remaining_s - ANSWER_RESERVE_S)
            await self._cluster.wait_until(lambda: self._is_known(topic), settle_s)

    def _made(self, topic: str, task: asyncio.Task[None]) -> None:
        self._in_making.pop(topic, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("topic not made: %s", task.exception(), extra=fields(topic=topic))

    def _is_known(self, topic: str) -> bool:
        return bool(self._cluster.book.serving(topic))

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._in_making.values():
            task.cancel()

    async def _make(self, topic: str) -> None:
        queues = self._rules.queues
        config = config_pb2.TopicConfig(
            name=topic,
            read_queues=queues,
            write_queues=queues,
            permission=PERMISSION_READ | PERMISSION_WRITE,
            type=config_pb2.TopicType.NORMAL,
        )
        request = admin_pb2.PutTopicRequest(topic=config).SerializeToString()
        brokers = self._cluster.book.masters()
        results = await self._brokers.ask_all(brokers, methods.PUT_TOPIC, request, (), MAKE_S_MAX)
        failed = [(result.broker.broker_name, result.error) for result in results if not _is_made(result.error)]
        for broker_name, error in failed:
            log.warning("topic not made: %s", error, extra=fields(topic=topic, broker=broker_name))
        if len(failed) == len(results) and failed[0][1] is not None:
            raise failed[0][1]
        log.info("topic made", extra=fields(topic=topic, brokers=len(results) - len(failed)))
        if not await self._cluster.wait_until(lambda: self._is_known(topic), MAKE_S_MAX):
            raise BrokerFault(Code.PROXY_TIMEOUT, f"the topic {topic!r} was made, but its brokers did not report it")


def _is_made(error: RazzoError | None) -> bool:
    return error is None or (isinstance(error, PeerFailed) and grpc_number(error.grpc_status) == ALREADY_EXISTS)
