"""Opens the door under test: every test that takes `open_door` runs on each kind of server that is built here."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import uvloop
from door.certificates import Authority
from door.probe import Probe, path, until
from door.wire import Wire

from razzo.door import DOORS, open_server
from razzo.door.methods import GrpcStatus
from razzo.door.observers import Observers
from razzo.door.server import Bound, DoorLimits, Server, TlsFiles

KINDS = [kind for kind in DOORS if kind != "native" or importlib.util.find_spec("razzo.door.native") is not None]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that the services run on."""
    return {"uvloop": uvloop.new_event_loop}


TEST_S_MAX = 60.0


@pytest.fixture(autouse=True)
async def watchdog(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Ends a test that hangs: pytest-timeout's signal is not delivered while uvloop waits."""
    marked = request.node.get_closest_marker("timeout")
    seconds = marked.args[0] - 10 if marked else TEST_S_MAX

    def give_up() -> None:
        for task in asyncio.all_tasks():
            task.cancel(f"the test took longer than {seconds} s")

    timer = asyncio.get_running_loop().call_later(seconds, give_up)
    yield
    timer.cancel()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


OURS = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "grpcio"])
"""What the specification asks and C-core does otherwise (tried with grpcio 1.85), and bounds it has no setting for."""


@dataclass
class Door:
    """A started server with the probe behind it."""

    kind: str
    server: Server
    bound: Bound
    probe: Probe
    closers: list[Callable[[], Awaitable[Any]]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.bound.host}:{self.bound.plain_port}"

    @property
    def tls_port(self) -> int:
        assert self.bound.tls_port is not None
        return self.bound.tls_port

    def channel(self, **options: Any) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(
            self.address, options=[*options.items(), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.closers.append(lambda: channel.close(None))
        return channel

    async def wire(self, **how: Any) -> Wire:
        wire = await Wire.connect(self.bound.host, how.pop("port", self.bound.plain_port), **how)
        self.closers.append(wire.close)
        return wire


OpenDoor = Callable[..., Awaitable[Door]]


async def opened(
    kind: str,
    limits: DoorLimits | None = None,
    tls: TlsFiles | None = None,
    observers: Observers | None = None,
    port: int = 0,
) -> Door:
    probe = Probe()
    server = open_server(kind, probe.table, limits or DoorLimits(), tls, observers)
    return Door(kind, server, await server.start("127.0.0.1", port, 0 if tls else None), probe)


@pytest.fixture
async def open_door(kind: str) -> AsyncIterator[OpenDoor]:
    """Starts doors of one kind with the limits, TLS files and observers of a test; all are stopped after it."""
    doors: list[Door] = []

    async def open_one(**settings: Any) -> Door:
        doors.append(await opened(kind, **settings))
        return doors[-1]

    yield open_one
    for door in doors:
        for close in door.closers:
            await close()
        await door.server.stop(0)


@pytest.fixture
async def door(open_door: OpenDoor) -> Door:
    return await open_door()


async def serves_others(door: Door) -> None:
    """A fresh connection is served."""
    wire = await Wire.connect(door.bound.host, door.bound.plain_port)
    answer = await wire.ask(path("EchoBatch"), b"are you there?")
    await wire.close()
    assert answer.status == GrpcStatus.OK.value


@pytest.fixture
async def bounded(open_door: OpenDoor) -> AsyncIterator[OpenDoor]:
    """Opens doors that, when the attack is over, must hold none of its calls and serve a fresh connection."""
    doors: list[Door] = []

    async def open_one(**limits: float) -> Door:
        doors.append(await open_door(limits=DoorLimits(**limits)))  # type: ignore[arg-type]
        return doors[-1]

    yield open_one
    for door in doors:
        for close in door.closers:
            await close()
        door.closers.clear()
        await until(lambda door=door: idle(door), "every call of the attack has ended")  # type: ignore[misc]
        await serves_others(door)


def idle(door: Door) -> bool:
    held = path("HoldBatch")
    return all(counts.in_flight == 0 for name, counts in door.server.method_counts().items() if name != held)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls_files(authority: Authority, tmp_path: Path) -> TlsFiles:
    """A server certificate of the authority, in files of the test's own."""
    return authority.server_files(tmp_path)
