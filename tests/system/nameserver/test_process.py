"""The nameserver as a process: ready line, health, refusals to start, clean stop."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from nameserver.nameserver_process import COMMAND, Client, NameserverProcess
from nameserver.scripted_broker import ScriptedBroker, topic

SERVING = health_pb2.HealthCheckResponse.SERVING


def run(*flags: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), *flags], capture_output=True, text=True, timeout=30, env=environ, check=False)


def test_the_ready_line_names_the_ports(start_nameserver: Callable[..., NameserverProcess]) -> None:
    ready = start_nameserver().ready
    assert (ready["event"], ready["service"]) == ("ready", "nameserver")
    ports = {ready["client"]["port"], ready["client"]["tls_port"], ready["peer"]["port"]}
    assert all(port > 0 for port in ports)
    assert ready["client"]["host"] == ready["peer"]["host"] == "127.0.0.1"


async def test_health_on_both_ports(nameserver: NameserverProcess, client: Client) -> None:
    for channel in (client.channel, client.peer_channel):
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "apache.rocketmq.v2.MessagingService", "razzo.v1.Registry", "razzo.v1.ClusterAdmin"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=5)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_ends_every_stream_and_is_clean(
    start_nameserver: Callable[..., NameserverProcess], with_signal: signal.Signals
) -> None:
    nameserver = start_nameserver("--stop-grace-ms=25000")
    async with Client(nameserver) as client, ScriptedBroker("a", topic("t")) as broker:
        registration = await (await broker.start()).register(nameserver.peer_address)
        telemetry = client.messaging.Telemetry(metadata=client.metadata)
        await telemetry.initial_metadata()
        watch = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        assert nameserver.stop(with_signal) == 0, nameserver.log
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await registration.wait(lambda: registration.ended is not None)
        assert registration.ended is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await telemetry.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_reflection_is_behind_a_setting(start_nameserver: Callable[..., NameserverProcess]) -> None:
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="razzo.v1.Registry")
    async with Client(start_nameserver("--reflection")) as client:
        stream = reflection_pb2_grpc.ServerReflectionStub(client.peer_channel).ServerReflectionInfo(timeout=5)
        await stream.write(request)
        answer = await stream.read()
        assert answer.file_descriptor_response.file_descriptor_proto
        await stream.done_writing()
    async with Client(start_nameserver()) as client:
        stream = reflection_pb2_grpc.ServerReflectionStub(client.peer_channel).ServerReflectionInfo(timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--client-host=127.0.0.1", f"--client-port={port}", "--peer-port=0", f"--data={tmp_path}")
    assert result.returncode == 3
    assert result.stdout == ""
    assert f"port {port}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--no-such-thing=1"], "--no-such-thing"),
        (["--client-port=70000"], "0 to 65535"),
        (["--client-port=http"], "a whole number"),
        (["--address-mode=sideways"], "one of direct, through, auto"),
        (["--tls-certificate=/x.pem"], "together"),
    ],
)
def test_settings_that_are_wrong_are_refused(flags: list[str], words: str) -> None:
    result = run(*flags)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_help_tells_of_every_setting() -> None:
    result = run("--help")
    assert result.returncode == 0
    for flag in ("--client-port", "--address-mode", "--auto-create-topics", "--settle-ms", "RAZZO_NAMESERVER_"):
        assert flag in result.stdout


def test_the_certificate_is_made_once(start_nameserver: Callable[..., NameserverProcess]) -> None:
    nameserver = start_nameserver()
    made = (nameserver.data / "server-certificate.pem").read_bytes()
    key = nameserver.data / "server-key.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert nameserver.stop() == 0
    nameserver.start()
    assert (nameserver.data / "server-certificate.pem").read_bytes() == made
