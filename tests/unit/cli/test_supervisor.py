"""`razzo up` with fake services: order of start and stop, deaths, restarts, services that misbehave."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from razzo_cluster import is_running, wait_until

from razzo.cli import child as child_module
from razzo.cli.exits import CommandFailed, Exit
from razzo.cli.services import Service, UpOptions
from razzo.cli.supervisor import Supervisor

FAKE = Path(__file__).with_name("fake_service.py")
DEADLINE_S = 20.0


def fake(name: str, tmp_path: Path, *arguments: str) -> Service:
    """A service that is the fake one with these arguments; its data directory is tmp_path/name."""
    (tmp_path / name).mkdir(exist_ok=True)
    return Service(name, Path(sys.executable), lambda *_: [str(FAKE), f"--data={tmp_path / name}", *arguments])


class Run:
    """One Supervisor in a task, and everything it announced."""

    def __init__(self, tmp_path: Path, services: list[Service], restarts: int = 0) -> None:
        self.options = UpOptions(tmp_path, "127.0.0.1", 0, "async", False, restarts, "info")
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.registrations: list[tuple[str, int]] = []
        supervisor = Supervisor(self.options, services, self.events.put_nowait, self._registered)
        self.task = asyncio.create_task(supervisor.run())

    async def _registered(self, peer: str, port: int) -> None:
        self.registrations.append((peer, port))

    async def event(self, name: str) -> dict[str, Any]:
        while True:
            getter = asyncio.create_task(self.events.get())
            await asyncio.wait([getter, self.task], timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            if not getter.done():
                getter.cancel()
                if self.task.done():
                    self.task.result()
                raise AssertionError(f"no event {name!r}")
            if getter.result()["event"] == name:
                return getter.result()

    async def end(self) -> None:
        await asyncio.wait_for(self.task, DEADLINE_S)


def log(tmp_path: Path, name: str) -> str:
    return (tmp_path / "logs" / f"{name}.log").read_text()


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., list[Service]]:
    """Nameserver and broker, both fakes; keyword arguments give one of them arguments."""

    def make(nameserver: tuple[str, ...] = (), broker: tuple[str, ...] = ()) -> list[Service]:
        return [fake("nameserver", tmp_path, *nameserver), fake("broker", tmp_path, *broker)]

    return make


async def test_ready_names_every_service_and_sigterm_ends_all(tmp_path: Path, pair: Callable[..., Any]) -> None:
    run = Run(tmp_path, pair())
    ready = await run.event("ready")
    pids = {name: state["pid"] for name, state in ready["services"].items()}
    assert list(pids) == ["nameserver", "broker"]
    assert all(map(is_running, pids.values()))
    assert ready["endpoint"] == f"127.0.0.1:{ready['services']['nameserver']['client']['port']}"
    assert ready["tls_endpoint"] is None
    assert len(run.registrations) == 1
    os.kill(os.getpid(), signal.SIGTERM)
    await run.end()
    assert not any(map(is_running, pids.values()))


async def test_output_of_services_is_in_their_logs(tmp_path: Path, pair: Callable[..., Any]) -> None:
    run = Run(tmp_path, pair(broker=("--after=chatty",)))
    await run.event("ready")
    os.kill(os.getpid(), signal.SIGINT)
    await run.end()
    assert set(log(tmp_path, "broker").split()) == {"one", "two", "three"}


async def test_a_service_that_refuses_its_settings_ends_all_with_its_words(
    tmp_path: Path, pair: Callable[..., Any]
) -> None:
    run = Run(tmp_path, pair(broker=("--before=refuse",)))
    with pytest.raises(CommandFailed, match=r"the broker did not start \(exit code 1\): the sky is not blue") as failed:
        await run.end()
    assert failed.value.code is Exit.REFUSED
    assert run.events.empty()


async def test_a_service_without_a_ready_line_is_a_fault(tmp_path: Path, pair: Callable[..., Any]) -> None:
    run = Run(tmp_path, pair(nameserver=("--before=garbage",)))
    with pytest.raises(CommandFailed, match="printed no ready line but b'hello"):
        await run.end()


async def test_a_service_that_never_is_ready_is_given_up(
    tmp_path: Path, pair: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "READY_S_MAX", 0.05)
    monkeypatch.setattr(child_module, "STOP_S_MAX", 0.1)
    run = Run(tmp_path, pair(nameserver=("--before=hang",)))
    with pytest.raises(CommandFailed, match=r"not ready within 0\.05 s"):
        await run.end()


async def test_a_death_without_restarts_stops_the_rest(tmp_path: Path, pair: Callable[..., Any]) -> None:
    run = Run(tmp_path, pair(broker=("--after=crash",)))
    ready = await run.event("ready")
    (tmp_path / "broker" / "crash").touch()
    with pytest.raises(CommandFailed, match=r"the broker died \(killed by SIGKILL\).*falling over") as failed:
        await run.end()
    assert failed.value.code is Exit.REFUSED
    assert not is_running(ready["services"]["nameserver"]["pid"])


async def test_deaths_are_mended_as_often_as_allowed(tmp_path: Path, pair: Callable[..., Any]) -> None:
    run = Run(tmp_path, pair(broker=("--after=crash",)), restarts=2)
    pids = {(await run.event("ready"))["services"]["broker"]["pid"]}
    for attempt in (1, 2):
        (tmp_path / "broker" / "crash").touch()
        died = await run.event("died")
        assert (died["service"], died["restart"], died["restarts_max"]) == ("broker", attempt, 2)
        pids.add((await run.event("restarted"))["state"]["pid"])
    assert len(pids) == 3
    assert len(run.registrations) == 3
    (tmp_path / "broker" / "crash").touch()
    with pytest.raises(CommandFailed, match="more than 2 times in 10 minutes"):
        await run.end()


async def test_a_signal_while_starting_stops_what_runs(
    tmp_path: Path, pair: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "STOP_S_MAX", 0.1)
    run = Run(tmp_path, pair(broker=("--before=hang",)))
    await asyncio.to_thread(wait_until, (tmp_path / "broker" / "hanging").exists, DEADLINE_S)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(CommandFailed, match=r"not stopped cleanly: broker \(killed by SIGKILL\)$"):
        await run.end()
    assert run.events.empty()


async def test_a_second_signal_kills(tmp_path: Path, pair: Callable[..., Any]) -> None:
    run = Run(tmp_path, pair(broker=("--after=deaf",)))
    broker = (await run.event("ready"))["services"]["broker"]["pid"]
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)
    assert is_running(broker)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(CommandFailed, match="second signal"):
        await run.end()
    assert not is_running(broker)


async def test_a_service_that_does_not_stop_is_killed_and_named(
    tmp_path: Path, pair: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "STOP_S_MAX", 0.1)
    run = Run(tmp_path, pair(nameserver=("--after=unclean",), broker=("--after=deaf",)))
    await run.event("ready")
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(
        CommandFailed, match=r"not stopped cleanly: broker \(killed by SIGKILL\), nameserver \(exit code 1\)"
    ):
        await run.end()


async def test_a_taken_client_port_is_refused_before_anything_starts(tmp_path: Path, pair: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = UpOptions(tmp_path, "127.0.0.1", port, "async", False, 0, "info")
        with pytest.raises(CommandFailed, match=f"port {port} of 127.0.0.1 is taken"):
            await Supervisor(options, pair(), lambda _: None).run()
    assert not (tmp_path / "logs").exists()


async def test_an_address_of_another_machine_is_refused(tmp_path: Path, pair: Callable[..., Any]) -> None:
    options = UpOptions(tmp_path, "192.0.2.1", 0, "async", False, 0, "info")
    (tmp_path / "ports.json").write_text('{"nameserver.client": 1024}')
    with pytest.raises(CommandFailed, match=r"cannot listen on 192\.0\.2\.1"):
        await Supervisor(options, pair(), lambda _: None).run()


async def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from razzo.cli.child import Child\n"
        "from razzo.cli.logfile import RollingLog\n"
        "async def main():\n"
        f"    log = RollingLog(Path({str(tmp_path / 'x.log')!r}))\n"
        f"    child = await Child.start('x', [sys.executable, {str(FAKE)!r}], log)\n"
        "    await child.wait_ready()\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, str(driver), stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await asyncio.wait_for(parent.stdout.readline(), DEADLINE_S))
    assert is_running(pid)
    parent.kill()
    await parent.wait()
    await asyncio.to_thread(wait_until, lambda: not is_running(pid), DEADLINE_S)
    assert not is_running(pid)
