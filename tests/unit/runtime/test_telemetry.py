"""The Telemetry desk with calls that have no server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol.codes import Code
from razzo.runtime.clients import Said
from razzo.runtime.requests import Caller
from razzo.runtime.status import CallRefused
from razzo.runtime.telemetry import TelemetryDesk, TelemetryLimits
from razzo.v1 import config_pb2

LIMITS = TelemetryLimits(
    streams_max=3, streams_per_client_max=2, outbox_commands_max=2, command_bytes_max=1_000, node_again_s=0.0
)
WAIT_S = 5.0


class FakeCall:
    """A Telemetry call; `send` gives it requests, `written` is what the desk wrote."""

    def __init__(self, client_id: str = "c", namespace: str = "") -> None:
        self.path, self.peer, self.secure = "/s/Telemetry", "ipv4:10.0.0.5:4000", False
        self.headers_sent = False
        self.written: list[service_pb2.TelemetryCommand] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self._wrote = asyncio.Condition()
        self._metadata = {"x-mq-client-id": client_id, "x-mq-namespace": namespace}
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return tuple(self._metadata.items())

    def header(self, key: str) -> str | None:
        return self._metadata.get(key)

    def time_remaining(self) -> float | None:
        return None

    async def send_initial_metadata(self) -> None:
        self.headers_sent = True

    async def write(self, message: bytes) -> None:
        await self.may_write.wait()
        async with self._wrote:
            self.written.append(service_pb2.TelemetryCommand.FromString(message))
            self._wrote.notify_all()

    async def wait_written(self, count: int) -> list[service_pb2.TelemetryCommand]:
        async with asyncio.timeout(WAIT_S), self._wrote:
            await self._wrote.wait_for(lambda: len(self.written) >= count)
        return self.written

    def send(self, *commands: service_pb2.TelemetryCommand) -> None:
        for command in commands:
            self._requests.put_nowait(command.SerializeToString())

    def send_raw(self, message: bytes) -> None:
        self._requests.put_nowait(message)

    def half_close(self) -> None:
        self._requests.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._requests.get()) is not None:
            yield message


class Desk(TelemetryDesk):
    """A desk that remembers what it told its service."""

    def __init__(self, limits: TelemetryLimits = LIMITS) -> None:
        self.heard: list[tuple[str, Said]] = []
        self.events: list[str] = []
        self.news = asyncio.Event()
        self.reports: list[service_pb2.TelemetryCommand] = []
        self.groups: dict[str, config_pb2.GroupConfig] = {}
        super().__init__(
            self.groups.get,
            self._heard,
            self._opened,
            lambda client_id: self.events.append(f"-{client_id}"),
            lambda _, command: self.reports.append(command),
            limits,
        )

    async def _heard(self, caller: Caller, settings: definition_pb2.Settings, said: Said) -> None:
        self.heard.append((caller.client_id, said))

    def _opened(self, client_id: str) -> None:
        self.events.append(f"+{client_id}")
        self.news.set()

    async def wait_open(self, count: int) -> None:
        """For so many streams to be open."""
        async with asyncio.timeout(WAIT_S):
            while len(self) < count:
                self.news.clear()
                await self.news.wait()

    def serve(self, call: FakeCall) -> asyncio.Task[None]:
        return asyncio.create_task(self.handle(call))


def producer(language: definition_pb2.Language = definition_pb2.Language.JAVA) -> service_pb2.TelemetryCommand:
    settings = definition_pb2.Settings(publishing=definition_pb2.Publishing())
    settings.user_agent.language = language
    settings.publishing.topics.add(name="orders")
    return service_pb2.TelemetryCommand(settings=settings)


def consumer() -> service_pb2.TelemetryCommand:
    settings = definition_pb2.Settings(subscription=definition_pb2.Subscription())
    settings.subscription.group.name = "g"
    entry = settings.subscription.subscriptions.add()
    entry.topic.name, entry.expression.type, entry.expression.expression = "orders", 1, "a || b"
    return service_pb2.TelemetryCommand(settings=settings)


def command(nonce: str = "n") -> service_pb2.TelemetryCommand:
    result = service_pb2.TelemetryCommand()
    result.print_thread_stack_trace_command.nonce = nonce
    return result


async def refusal(task: asyncio.Task[None]) -> grpc.StatusCode:
    with pytest.raises(CallRefused) as refused:
        await asyncio.wait_for(task, WAIT_S)
    return refused.value.status


async def test_settings_are_reported_with_effective_names_and_answered() -> None:
    desk, call = Desk(), FakeCall(namespace="blue")
    desk.groups["blue%g"] = config_pb2.GroupConfig(name="blue%g", fifo=True)
    task = desk.serve(call)
    call.send(consumer())
    (answer,) = await call.wait_written(1)
    assert call.headers_sent
    assert answer.status.code == Code.OK
    assert answer.settings.subscription.fifo, "the group's own configuration"
    assert answer.settings.subscription.group == definition_pb2.Resource(name="g"), "echoed as sent"
    ((client_id, said),) = desk.heard
    assert (client_id, said.group, said.subscriptions) == ("c", "blue%g", {"blue%orders": (1, "a || b")})
    call.half_close()
    await asyncio.wait_for(task, WAIT_S)
    assert desk.events == ["+c", "-c"]
    assert len(desk) == 0


async def test_a_node_client_is_answered_twice_with_the_latest_answer() -> None:
    desk, call = Desk(), FakeCall()
    task = desk.serve(call)
    call.send(producer(definition_pb2.Language.NODE_JS))
    first, second = await call.wait_written(2)
    assert first == second
    call.send(producer(definition_pb2.Language.NODE_JS))
    await call.wait_written(3)
    call.half_close()
    await asyncio.wait_for(task, WAIT_S)
    assert len(call.written) == 3, "only the first Settings are answered twice"


async def test_commands_go_to_the_newest_stream() -> None:
    desk, older, newer = Desk(), FakeCall(), FakeCall()
    tasks = [desk.serve(older)]
    await desk.wait_open(1)
    tasks.append(desk.serve(newer))
    await desk.wait_open(2)
    assert desk.send("c", command("1"))
    assert (await newer.wait_written(1))[0] == command("1")
    newer.half_close()
    await asyncio.wait_for(tasks[1], WAIT_S)
    assert desk.is_connected("c")
    assert desk.send("c", command("2"))
    assert (await older.wait_written(1))[0] == command("2")
    older.half_close()
    await asyncio.wait_for(tasks[0], WAIT_S)
    assert not desk.is_connected("c")
    assert not desk.send("c", command("3"))


async def test_a_client_that_does_not_read_gets_no_more_commands() -> None:
    desk, call = Desk(), FakeCall()
    call.may_write.clear()
    task = desk.serve(call)
    await desk.wait_open(1)
    sent = 0
    while desk.send("c", command(str(sent))):
        sent += 1
        await asyncio.sleep(0)
        assert sent < 10, "the outbox has no bound"
    call.may_write.set()
    await call.wait_written(sent)
    assert desk.send("c", command("again"))
    call.half_close()
    await asyncio.wait_for(task, WAIT_S)
    assert [each.print_thread_stack_trace_command.nonce for each in call.written][-1] == "again", "nothing is lost"


async def test_answers_of_clients_are_reported() -> None:
    desk, call = Desk(), FakeCall()
    task = desk.serve(call)
    trace = service_pb2.TelemetryCommand()
    trace.thread_stack_trace.nonce = "n"
    call.send(trace, service_pb2.TelemetryCommand())
    call.half_close()
    await asyncio.wait_for(task, WAIT_S)
    assert desk.reports == [trace]


async def test_a_client_has_so_many_streams_and_the_oldest_is_ended() -> None:
    desk = Desk()
    calls = [FakeCall() for _ in range(3)]
    tasks = []
    for number, call in enumerate(calls):
        tasks.append(desk.serve(call))
        await desk.wait_open(min(number + 1, 2))
    assert await refusal(tasks[0]) is grpc.StatusCode.ABORTED
    await desk.wait_open(2)
    await desk.close()
    assert [await refusal(task) for task in tasks[1:]] == [grpc.StatusCode.UNAVAILABLE] * 2


async def test_a_desk_has_so_many_streams() -> None:
    desk = Desk()
    tasks = []
    for number in range(3):
        tasks.append(desk.serve(FakeCall(f"c{number}")))
        await desk.wait_open(number + 1)
    assert await refusal(desk.serve(FakeCall("one more"))) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(desk) == 3
    await desk.close()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(1_001), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"\x12\x00", grpc.StatusCode.INVALID_ARGUMENT),  # empty settings
    ],
)
async def test_what_ends_a_stream(raw: bytes, status: grpc.StatusCode) -> None:
    desk, call = Desk(), FakeCall()
    task = desk.serve(call)
    call.send_raw(raw)
    assert await refusal(task) is status
    assert desk.events == ["+c", "-c"]


async def test_a_blank_client_id_is_told_and_refused() -> None:
    desk, call = Desk(), FakeCall("  ")
    assert await refusal(desk.serve(call)) is grpc.StatusCode.INVALID_ARGUMENT
    assert [answer.status.code for answer in call.written] == [Code.CLIENT_ID_REQUIRED]
    assert desk.events == []


async def test_a_lost_client_is_reported_lost() -> None:
    desk, call = Desk(), FakeCall()
    task = desk.serve(call)
    await desk.wait_open(1)
    task.cancel()
    await asyncio.wait([task])
    assert desk.events == ["+c", "-c"]
