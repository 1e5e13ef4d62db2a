"""Accepting: bounds and shortages, with real sockets."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from door import wire as h2
from door.certificates import Authority
from door.probe import until

from razzo.door import listener as listener_module
from razzo.door.listener import Certificates, Listener
from razzo.door.methods import BatchCall, MethodTable
from razzo.door.native import DoorServer
from razzo.door.server import Bound, DoorLimits, TlsFiles
from razzo.door.tls import CertificateWatch

Start = Callable[..., Any]


def echo(calls: list[BatchCall]) -> None:
    for call in calls:
        call.answer(call.request)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    servers: list[DoorServer] = []

    async def begin(tls: TlsFiles | None = None, **limits: Any) -> Bound:
        table = MethodTable()
        table.unary_batch("/t.S/Echo", echo)
        servers.append(DoorServer(table, DoorLimits(**limits), tls))
        return await servers[-1].start("127.0.0.1", 0)

    yield begin
    for server in servers:
        await server.stop(0)


async def open_raw(bound: Bound) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(bound.host, bound.plain_port)


async def served(bound: Bound) -> bool:
    """True when a new connection gets the server's SETTINGS, False when it is closed instead."""
    reader, writer = await open_raw(bound)
    writer.write(h2.PREFACE + h2.settings())
    try:
        return len(await asyncio.wait_for(reader.read(9), 5)) == 9
    except ConnectionResetError:
        return False
    finally:
        writer.close()


async def test_connections_max(start: Start) -> None:
    bound = await start(connections_max=2)
    kept = [await open_raw(bound) for _ in range(2)]
    for reader, _ in kept:
        assert await asyncio.wait_for(reader.readexactly(9), 5)
    assert not await served(bound)
    kept[0][1].close()
    await kept[0][1].wait_closed()
    for _ in range(200):
        if await served(bound):
            break
    else:
        pytest.fail("the place of a closed connection is not given away")
    kept[1][1].close()


async def test_descriptor_shortage_is_waited_out(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """accept() that fails for want of descriptors is left alone for a while, not tried in every turn of the loop."""
    monkeypatch.setattr(listener_module, "ACCEPT_PAUSE_S", 0.05)
    tries: list[int] = []
    made: list[bool] = []

    class Short(socket.socket):
        def accept(self) -> Any:
            tries.append(len(tries))
            if len(tries) <= 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    def protocol(secure: bool) -> asyncio.BaseProtocol:
        made.append(secure)
        return asyncio.Protocol()

    monkeypatch.setattr(listener_module.socket, "socket", Short)
    listener = Listener(DoorLimits(), None, True, protocol, set())
    port = await listener.listen("127.0.0.1", 0)
    monkeypatch.undo()
    monkeypatch.setattr(listener_module, "ACCEPT_PAUSE_S", 0.05)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: made == [False], "the connection, after the shortage")
    assert len(tries) <= 6
    assert caplog.text.count("accepting connections pauses") == 3
    writer.close()
    listener.close()
    await listener.closed()


async def test_port_is_free_again_after_a_listener_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(DoorLimits(), None, True, lambda secure: asyncio.Protocol(), set())
    port = await listener.listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await listener.listen("127.0.0.1", port)
    listener.close()
    again = Listener(DoorLimits(), None, True, lambda secure: asyncio.Protocol(), set())
    assert await again.listen("127.0.0.1", port) == port
    again.close()


async def test_silent_connection_on_a_shared_port_is_dropped(start: Start, tmp_path: Any) -> None:
    authority = Authority(tmp_path)
    bound = await start(authority.server_files(tmp_path), handshake_s=0.1)
    reader, writer = await open_raw(bound)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_first_byte_may_come_alone(start: Start, tmp_path: Any) -> None:
    bound = await start(Authority(tmp_path).server_files(tmp_path))
    reader, writer = await open_raw(bound)
    start_of_all = h2.PREFACE + h2.settings()
    writer.write(start_of_all[:1])
    await writer.drain()
    assert await asyncio.wait_for(reader.readexactly(9), 5), "SETTINGS answer the first byte"
    writer.write(start_of_all[1:] + h2.ping())
    answer = b""
    while h2.frame(h2.PING, h2.ACK, 0, b"razzotst") not in answer:
        answer += await asyncio.wait_for(reader.read(1_000), 5)
    writer.close()


async def test_bad_certificate_files_leave_the_old_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(listener_module, "CERTIFICATE_CHECK_S", 0.0)
    files = Authority(tmp_path).server_files(tmp_path)
    certificates = Certificates(CertificateWatch(files))
    first = certificates.context()
    good = files.certificate.read_bytes()
    files.certificate.write_bytes(b"half a certificate")
    assert certificates.context() is first
    files.certificate.unlink()
    assert certificates.context() is first
    files.certificate.write_bytes(good)
    assert certificates.context() is not first


async def test_large_requests_over_tls_on_the_event_loop_of_the_standard_library(start: Start, tmp_path: Any) -> None:
    """asyncio's TLS fills the door's buffer piece by piece, uvloop's at once."""
    authority = Authority(tmp_path)
    bound = await start(authority.server_files(tmp_path))
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    message = Random(1).randbytes(2_000_000)
    async with grpc.aio.secure_channel(f"localhost:{bound.tls_port}", credentials) as channel:
        assert await channel.unary_unary("/t.S/Echo")(message, timeout=30) == message
