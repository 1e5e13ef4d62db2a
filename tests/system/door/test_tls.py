"""TLS: a secure client, ALPN, a certificate replaced without a restart, client certificates."""

from __future__ import annotations

import asyncio
import json
import ssl
import warnings
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from door.certificates import Authority
from door.conftest import OURS, Door, OpenDoor
from door.probe import PATIENCE_S, path
from door.wire import Wire

from razzo.door.server import DoorLimits, TlsFiles


def secure_channel(door: Door, authority: Authority, client: tuple[bytes, bytes] | None = None) -> grpc.aio.Channel:
    key, certificate = client or (None, None)
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), key, certificate)
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.aio.secure_channel(f"localhost:{door.tls_port}", credentials, options=options)
    door.closers.append(lambda: channel.close(None))
    return channel


async def test_calls_over_tls_and_in_the_clear(open_door: OpenDoor, authority: Authority, tls_files: TlsFiles) -> None:
    door = await open_door(tls=tls_files)
    secure, plain = secure_channel(door, authority), door.channel()
    for channel, expected in ((secure, True), (plain, False)):
        told = json.loads(await channel.unary_unary(path("Describe"))(b""))
        assert told["secure"] is expected
        told = json.loads(await channel.unary_unary(path("DescribeBatch"))(b""))
        assert told["secure"] is expected


async def test_all_kinds_of_call_over_tls(open_door: OpenDoor, authority: Authority, tls_files: TlsFiles) -> None:
    door = await open_door(tls=tls_files)
    channel = secure_channel(door, authority)
    echo = channel.unary_unary(path("EchoBatch"))
    assert await asyncio.gather(*(echo(b"%d" % n) for n in range(200))) == [b"%d" % n for n in range(200)]
    assert await channel.unary_unary(path("Echo"))(bytes(3 << 20)) == bytes(3 << 20)
    messages = [message async for message in channel.unary_stream(path("Raw"))(b"100 20000")]
    assert [len(message) for message in messages] == [len(b"%d " % n) + 20_000 for n in range(100)]
    chat = channel.stream_stream(path("Chat"))()
    await chat.write(b"hello")
    assert await chat.read() == b"hello"


@OURS
async def test_one_port_tells_plaintext_from_tls(
    open_door: OpenDoor, authority: Authority, tls_files: TlsFiles
) -> None:
    door = await open_door(tls=tls_files)
    assert door.bound.plain_port == door.bound.tls_port
    plain = await door.wire()
    secure = await door.wire(tls=authority.client_context())
    assert (await plain.ask(path("Echo"), b"x")).status == 0
    assert (await secure.ask(path("Echo"), b"x")).status == 0


async def test_alpn_is_h2(open_door: OpenDoor, authority: Authority, tls_files: TlsFiles) -> None:
    door = await open_door(tls=tls_files)
    wire = await door.wire(port=door.tls_port, tls=authority.client_context(protocols=("http/1.1", "h2")))
    assert wire.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    assert (await wire.ask(path("Echo"), b"x")).status == 0


@pytest.mark.parametrize("protocols", [("http/1.1",), ()])
async def test_client_without_h2_is_not_served(
    open_door: OpenDoor, authority: Authority, tls_files: TlsFiles, protocols: tuple[str, ...]
) -> None:
    """RFC 9113, 3.2: over TLS, HTTP/2 is agreed on by ALPN."""
    door = await open_door(tls=tls_files)
    try:
        wire = await door.wire(port=door.tls_port, tls=authority.client_context(protocols=protocols))
    except (ssl.SSLError, OSError):
        pass  # refused in the handshake, as it may be
    else:
        await wire.until_closed()
        assert wire.streams == {}
    good = await door.wire(port=door.tls_port, tls=authority.client_context())
    assert (await good.ask(path("Echo"), b"x")).status == 0


async def test_old_tls_is_refused(open_door: OpenDoor, authority: Authority, tls_files: TlsFiles) -> None:
    door = await open_door(tls=tls_files)
    context = authority.client_context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await door.wire(port=door.tls_port, tls=context)


def subject_of(wire: Wire) -> str:
    certificate = wire.writer.get_extra_info("peercert")
    return str(dict(pair for name in certificate["subject"] for pair in name)["commonName"])


async def shown(door: Door, authority: Authority, name: str) -> None:
    """Connects until the server shows the certificate of that name."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            wire = await Wire.connect(door.bound.host, door.tls_port, tls=authority.client_context())
            subject = subject_of(wire)
            await wire.close()
            if subject == name:
                return


async def test_replaced_certificate_is_used_without_a_restart(
    open_door: OpenDoor, authority: Authority, tls_files: TlsFiles, tmp_path: Path
) -> None:
    door = await open_door(tls=tls_files)
    first = await door.wire(port=door.tls_port, tls=authority.client_context())
    assert subject_of(first) == "door"
    authority.server_files(tmp_path, "door renewed")
    await shown(door, authority, "door renewed")
    assert (await first.ask(path("Echo"), b"x")).status == 0, "the old connection goes on"


async def test_broken_certificate_file_leaves_the_old_certificate_in_use(
    open_door: OpenDoor, authority: Authority, tls_files: TlsFiles, tmp_path: Path
) -> None:
    door = await open_door(tls=tls_files)
    for damage in (b"", b"no certificate\n", None):
        if damage is None:
            tls_files.certificate.unlink()
        else:
            tls_files.certificate.write_bytes(damage)
        wire = await door.wire(port=door.tls_port, tls=authority.client_context())
        assert subject_of(wire) == "door"
        assert (await wire.ask(path("Echo"), b"x")).status == 0
    authority.server_files(tmp_path, "door repaired")
    await shown(door, authority, "door repaired")


async def test_mutual_tls_serves_only_clients_of_the_authority(
    open_door: OpenDoor, authority: Authority, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    door = await open_door(tls=authority.server_files(tmp_path, mutual=True))
    good = secure_channel(door, authority, authority.issue("client"))
    assert await good.unary_unary(path("Echo"))(b"x") == b"x"
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "Another authority").issue("client")
    for client in (None, stranger):
        bad = secure_channel(door, authority, client)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await bad.unary_unary(path("Echo"))(b"x", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert await good.unary_unary(path("Echo"))(b"y") == b"y"


async def test_compulsory_tls_serves_no_plaintext(
    open_door: OpenDoor, authority: Authority, tls_files: TlsFiles
) -> None:
    door = await open_door(tls=replace(tls_files, compulsory=True))
    assert door.bound.plain_port == door.bound.tls_port
    plain = await door.wire()
    await plain.send(plain.call(path("EchoBatch"), b"x")[1])
    await plain.until_closed()
    assert door.probe.batches == []
    secure = await door.wire(port=door.tls_port, tls=authority.client_context())
    assert (await secure.ask(path("EchoBatch"), b"x")).status == 0


async def test_missing_files_are_an_error_at_start(open_door: OpenDoor, tmp_path: Path) -> None:
    with pytest.raises((OSError, ssl.SSLError)):
        await open_door(tls=TlsFiles(tmp_path / "none.crt", tmp_path / "none.key"))


async def test_silent_handshake_is_ended(open_door: OpenDoor, authority: Authority, tls_files: TlsFiles) -> None:
    """A client that connects to the TLS port and says nothing, or half a greeting, is closed after `handshake_s`."""
    door = await open_door(tls=tls_files, limits=DoorLimits(handshake_s=0.5))
    for greeting in (b"", b"\x16\x03\x01\x02\x00\x01"):
        reader, writer = await asyncio.open_connection(door.bound.host, door.tls_port)
        writer.write(greeting)
        async with asyncio.timeout(8):
            assert len(await reader.read()) < 200  # closed; perhaps after an alert or SETTINGS
        writer.close()
