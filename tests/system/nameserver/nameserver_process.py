"""A real nameserver process for tests, and a client of it."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from apache.rocketmq.v2 import definition_pb2, service_pb2_grpc
from razzo.v1 import admin_pb2_grpc, registry_pb2, registry_pb2_grpc

COMMAND = Path(sys.executable).parent / "razzo-nameserver"
START_S_MAX = 20.0
STOP_S_MAX = 15.0
POLL_S = 0.01
OPTIONS = (("grpc.max_receive_message_length", -1),)
"""As most official clients set it."""


async def until(condition: Callable[[], Any], what: str, timeout_s: float = 10.0) -> Any:
    """The first truthy value of `condition`; AssertionError when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(POLL_S)
    return value


async def until_async(condition: Callable[[], Awaitable[Any]], what: str, timeout_s: float = 10.0) -> Any:
    """The same for a condition that has to be asked for."""
    deadline = time.monotonic() + timeout_s
    while not (value := await condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(POLL_S)
    return value


class NameserverProcess:
    """`razzo-nameserver` on free ports of 127.0.0.1, with its log in a file."""

    def __init__(self, data: Path, *flags: str, settle_ms: int = 0) -> None:
        self.data = data
        self._flags = ["--client-host=127.0.0.1", "--client-port=0", "--peer-host=127.0.0.1", "--peer-port=0"]
        self._flags += [f"--data={data}", f"--settle-ms={settle_ms}", "--log-level=debug", *flags]
        self.ready: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.data / "log").read_text() if (self.data / "log").exists() else ""

    @property
    def client_address(self) -> str:
        return f"127.0.0.1:{self.ready['client']['port']}"

    @property
    def client_port(self) -> int:
        return int(self.ready["client"]["port"])

    @property
    def tls_address(self) -> str:
        return f"localhost:{self.ready['client']['tls_port'] or self.ready['client']['port']}"

    @property
    def peer_address(self) -> str:
        return f"127.0.0.1:{self.ready['peer']['port']}"

    def start(self) -> Self:
        """Returns when the ready line came; AssertionError with the log when it does not."""
        self.data.mkdir(parents=True, exist_ok=True)
        with open(self.data / "log", "wb") as log:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("RAZZO_")}
            self._process = subprocess.Popen(
                [str(COMMAND), *self._flags], stdout=subprocess.PIPE, stderr=log, env=environment
            )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S_MAX)
        line = self._process.stdout.readline() if readable else b""
        assert line, f"the nameserver did not start:\n{self.log}"
        self.ready = json.loads(line)
        return self

    def stop(self, with_signal: int = signal.SIGTERM) -> int:
        """Its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(with_signal)
        try:
            return self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"the nameserver did not stop:\n{self.log}") from None
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None


class Client:
    """gRPC stubs of one client, with the metadata of an official one."""

    def __init__(self, nameserver: NameserverProcess, client_id: str = "client@1", *, tls: bool = False) -> None:
        if tls:
            root = (nameserver.data / "server-certificate.pem").read_bytes()
            self.channel = grpc.aio.secure_channel(nameserver.tls_address, grpc.ssl_channel_credentials(root), OPTIONS)
        else:
            self.channel = grpc.aio.insecure_channel(nameserver.client_address, OPTIONS)
        self.peer_channel = grpc.aio.insecure_channel(nameserver.peer_address)
        self.messaging = service_pb2_grpc.MessagingServiceStub(self.channel)
        self.admin = admin_pb2_grpc.ClusterAdminStub(self.channel)
        self.peer_admin = admin_pb2_grpc.ClusterAdminStub(self.peer_channel)
        self.registry = registry_pb2_grpc.RegistryStub(self.peer_channel)
        self.metadata: Sequence[tuple[str, str]] = (("x-mq-client-id", client_id), ("x-mq-language", "JAVA"))
        self.endpoints = endpoints("127.0.0.1", nameserver.client_port)

    async def call(self, method: str, request: Any, timeout_s: float = 5.0) -> Any:
        """One unary call of MessagingService."""
        return await getattr(self.messaging, method)(request, metadata=self.metadata, timeout=timeout_s)

    async def view(self) -> list[str]:
        """Names of the brokers that the nameserver shows."""
        view = await self.registry.DescribeCluster(registry_pb2.DescribeClusterRequest(), timeout=5)
        return [broker.broker_name for broker in view.brokers]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.channel.close()
        await self.peer_channel.close()


def endpoints(host: str, port: int) -> definition_pb2.Endpoints:
    scheme = definition_pb2.AddressScheme.IPv4 if host[0].isdigit() else definition_pb2.AddressScheme.DOMAIN_NAME
    return definition_pb2.Endpoints(scheme=scheme, addresses=[definition_pb2.Address(host=host, port=port)])


def resource(name: str) -> definition_pb2.Resource:
    return definition_pb2.Resource(name=name)
