"""Conformance with the gRPC libraries that the official clients stand on: all run the same checks (see programs.py)."""

from __future__ import annotations

import asyncio

import pytest
from door.conftest import OpenDoor, opened
from door.probe import until
from door.programs import BUILD_S_MAX, LANGUAGES, RUN_S_MAX, Run

from razzo.door.server import DoorLimits, TlsFiles

CHECKS = {
    "echo sizes",
    "many at once",
    "statuses",
    "unknown method",
    "metadata",
    "deadline",
    "server stream",
    "stream that fails",
    "cancel",
    "conversation",
    "fail while writing",
    "too large",
    "gzip",
    "crash",
    "deadline storm",
}
LIMITS = DoorLimits(request_bytes_max=8 << 20)
pytestmark = pytest.mark.timeout(BUILD_S_MAX + RUN_S_MAX)  # the first test of a language builds its program


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_library_agrees_with_the_door(open_door: OpenDoor, tls_files: TlsFiles, language: str, tls: bool) -> None:
    door = await open_door(limits=LIMITS, tls=tls_files if tls else None)
    address = f"localhost:{door.tls_port}" if tls else door.address
    run = await Run.start(language, *(["--tls"] if tls else []), address)
    try:
        results = {name: error async for name, error in run.checks()}
    finally:
        run.end()
    assert {name: error for name, error in results.items() if error} == {}
    assert set(results) == CHECKS
    await until(
        lambda: all(
            counts.in_flight == 0 for path, counts in door.server.method_counts().items() if "Hold" not in path
        ),
        "no call is left",
    )


@pytest.mark.parametrize("language", LANGUAGES)
async def test_library_finishes_its_call_and_moves_on_when_a_server_stops(open_door: OpenDoor, language: str) -> None:
    """GOAWAY with a call in flight, which ends well; the next call goes to the server that took the port over."""
    door = await open_door()
    run = await Run.start(language, "--drain", door.address)
    try:
        await door.probe.saw("HoldBatch held")
        stopping = asyncio.ensure_future(door.server.stop(20))
        checks = run.checks()
        door.probe.held[0].answer(b"in time")
        assert await anext(checks) == ("held", "")
        await stopping
        successor = await opened(door.kind, port=door.bound.plain_port)
        try:
            await run.go_on()
            assert await anext(checks) == ("drain", "")
        finally:
            await successor.server.stop(0)
    finally:
        run.end()
