"""Fixtures of the nameserver's system tests: real processes, scripted brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from nameserver.nameserver_process import Client, NameserverProcess, until_async


@pytest.fixture(scope="session", params=["grpcio", "native"])
def running_nameserver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NameserverProcess]:
    """Tests of a nameserver with default settings run on both doors."""
    data = tmp_path_factory.mktemp(f"nameserver-{request.param}")
    process = NameserverProcess(data, f"--door={request.param}").start()
    yield process
    assert process.stop() == 0, process.log


@pytest.fixture
async def nameserver(running_nameserver: NameserverProcess) -> NameserverProcess:
    """A nameserver with default settings that no broker is registered with."""
    async with Client(running_nameserver) as client:

        async def is_empty() -> bool:
            return not await client.view()

        await until_async(is_empty, "brokers of earlier tests are still there")
    return running_nameserver


@pytest.fixture
async def client(nameserver: NameserverProcess) -> AsyncIterator[Client]:
    async with Client(nameserver) as client:
        yield client


@pytest.fixture
def start_nameserver(tmp_path: Path) -> Iterator[Callable[..., NameserverProcess]]:
    """Starts a nameserver of the test's own with these flags."""
    started: list[NameserverProcess] = []

    def start(*flags: str, settle_ms: int = 0) -> NameserverProcess:
        process = NameserverProcess(tmp_path / f"nameserver{len(started)}", *flags, settle_ms=settle_ms)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        if process.running():
            assert process.stop() == 0, process.log
