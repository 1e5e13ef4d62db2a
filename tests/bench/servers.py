"""The servers under test, with one face: Razzo on either door, and Apache RocketMQ 5.4.0 (proxy and broker in one JVM).

`cpu_ns` is the run time of all threads of the processes that handle messages: Razzo's broker; Apache's JVM with broker
and gRPC proxy. Name servers are not counted on either side: they see a few route queries only.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

SYSTEM = Path(__file__).resolve().parents[1] / "system"
sys.path[:0] = [str(SYSTEM), str(SYSTEM / "apache")]

import grpc  # noqa: E402
from apache_rocketmq import Desk, classpath, free_ports  # noqa: E402
from clients import CLIENT_HEADERS  # noqa: E402
from razzo_cluster import Cluster, wait_until  # noqa: E402

from apache.rocketmq.v2 import definition_pb2 as pb  # noqa: E402
from apache.rocketmq.v2 import service_pb2 as svc  # noqa: E402
from razzo.protocol import methods  # noqa: E402

QUEUES = 8
READY_S_MAX = 90
STOP_S_MAX = 60
STORED_S_MAX = 30
APACHE_JVM = (
    # bin/runserver.sh of the distribution, with the heap of this comparison
    "-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
    "-XX:+AlwaysPreTouch", "-XX:MaxDirectMemorySize=2g", "-XX:-UseLargePages",
)  # fmt: skip
APACHE_OPENED = ("jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch", "sun.security.action", "java.nio", "java.lang")
APACHE_OPENS = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in APACHE_OPENED)


class Server(Protocol):
    """What the benches ask of a server."""

    name: str
    endpoint: str
    """host:port that a client is configured with."""
    broker_name: str

    def create_topic(self, topic: str) -> str:
        """Makes a NORMAL topic of `QUEUES` queues; host:port to send its messages to."""

    def stored(self, topic: str) -> int:
        """Messages of the topic, by its queues' offsets."""

    def cpu_ns(self) -> int: ...


def process_cpu_ns(pid: int) -> int:
    """Nanoseconds of CPU that all threads of a process have used (those that ended before are not known)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def wait_stored(server: Server, topic: str, count: int) -> int:
    """The topic's messages as soon as there are `count`: Apache builds its queues behind the answers."""
    kept = 0

    def there() -> bool:
        nonlocal kept
        kept = server.stored(topic)
        return kept >= count

    wait_until(there, STORED_S_MAX, f"{server.name} has {count} messages in {topic}")
    return kept


class Razzo:
    """`razzo up` with the given door at the broker."""

    broker_name = "any"

    def __init__(self, cluster: Cluster, door: str) -> None:
        self.name = f"razzo-{door}"
        self.endpoint = cluster.endpoint
        self._cluster = cluster
        self.pid = cluster.pid("broker")

    def create_topic(self, topic: str) -> str:
        self._cluster.must("create-topic", topic, "--type", "normal", "--queues", str(QUEUES))
        host, port = self.endpoint.rsplit(":", 1)
        request = svc.QueryRouteRequest(
            topic=pb.Resource(name=topic),
            endpoints=pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=int(port))]),
        )
        with grpc.insecure_channel(self.endpoint) as channel:
            call = channel.unary_unary(methods.QUERY_ROUTE, None, svc.QueryRouteResponse.FromString)
            answer = call(request.SerializeToString(), metadata=CLIENT_HEADERS[:-1], timeout=10)
        address = answer.message_queues[0].broker.endpoints.addresses[0]
        return f"{address.host}:{address.port}"

    def stored(self, topic: str) -> int:
        rows = self._cluster.must("topics")
        for row in rows["topics"] if isinstance(rows, dict) else rows:
            if row.get("name", row.get("topic")) == topic:
                return sum(int(queue["max_offset"]) - int(queue["min_offset"]) for queue in row["queues"])
        raise LookupError(topic)

    def cpu_ns(self) -> int:
        return process_cpu_ns(self.pid)


class Apache:
    """Apache's `ProxyStartup` in local mode (broker inside), administered by the desk of the interop tests."""

    name = "apache"
    broker_name = "bench"

    def __init__(self, desk: Desk, process: subprocess.Popen[bytes], endpoint: str) -> None:
        self._desk = desk
        self.pid = process.pid
        self.endpoint = endpoint

    def create_topic(self, topic: str) -> str:
        self._desk.call("create_topic", broker=self.broker_name, topic=topic, queues=QUEUES)
        self._until_routed(topic)
        return self.endpoint

    def _until_routed(self, topic: str) -> None:
        """The proxy learns routes from the name server, which the broker tells of a topic a moment later."""
        host, port = self.endpoint.rsplit(":", 1)
        request = svc.QueryRouteRequest(
            topic=pb.Resource(name=topic),
            endpoints=pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=int(port))]),
        )
        with grpc.insecure_channel(self.endpoint) as channel:
            call = channel.unary_unary(methods.QUERY_ROUTE, None, svc.QueryRouteResponse.FromString)

            def routed() -> bool:
                answer = call(request.SerializeToString(), metadata=CLIENT_HEADERS[:-1], timeout=READY_S_MAX)
                return bool(answer.status.code == pb.OK)

            wait_until(routed, READY_S_MAX, f"Apache's proxy has a route of {topic}")

    def stored(self, topic: str) -> int:
        ranges = [
            self._desk.call("range", broker=self.broker_name, topic=topic, queue_id=queue)
            for queue in range(QUEUES)
        ]
        return sum(last - first for first, last in ranges)

    def cpu_ns(self) -> int:
        return process_cpu_ns(self.pid)


@contextlib.contextmanager
def razzo(door: str, flush: str, home: Path) -> Iterator[Razzo]:
    """A cluster with a data directory of its own."""
    extra = ["--set", f"broker.door={door}", "--set", f"nameserver.door={door}"]
    cluster = Cluster(home / f"razzo-{door}", flush=flush, log_level="warning", extra=extra).start()
    try:
        yield Razzo(cluster, door)
    finally:
        if cluster.running:
            cluster.stop(STOP_S_MAX)
        cluster.terminate()


@contextlib.contextmanager
def apache(flush: str, home: Path) -> Iterator[Apache]:
    """Name server, broker and proxy on free ports, default settings but for `flushDiskType`."""
    work = home / "apache"
    desk = Desk(work / "desk")
    try:
        port, ha_port, grpc_port, remoting_port = free_ports(4)
        work.mkdir(parents=True, exist_ok=True)
        conf: dict[str, Any] = {
            "brokerClusterName": "DefaultCluster", "brokerName": Apache.broker_name, "brokerId": 0,
            "brokerIP1": "127.0.0.1", "listenPort": port, "haListenPort": ha_port, "namesrvAddr": desk.nameserver,
            "storePathRootDir": work / "store", "storePathCommitLog": work / "store" / "commitlog",
            "flushDiskType": f"{flush.upper()}_FLUSH",
        }  # fmt: skip
        (work / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
        (work / "rmq-proxy.json").write_text(json.dumps({
            "rocketMQClusterName": "DefaultCluster", "proxyMode": "LOCAL", "grpcServerPort": grpc_port,
            "remotingListenPort": remoting_port, "namesrvAddr": desk.nameserver}))  # fmt: skip
        command = ["java", *APACHE_JVM, *APACHE_OPENS, f"-Duser.home={work}", "-cp", classpath()]
        command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(work / "rmq-proxy.json")]
        command += ["-bc", str(work / "broker.conf")]
        with open(work / "stdout", "wb") as out:
            environment = {**os.environ, "ROCKETMQ_HOME": str(work)}
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=work, env=environment)
        try:
            _until_ready(desk, process, work / "stdout", f"127.0.0.1:{port}")
            yield Apache(desk, process, f"127.0.0.1:{grpc_port}")
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S_MAX)
    finally:
        desk.stop()


def _until_ready(desk: Desk, process: subprocess.Popen[bytes], said: Path, address: str) -> None:
    def ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"Apache ended:\n{said.read_text(errors='replace')[-4_000:]}")
        return b"startup successfully" in said.read_bytes() and bool(
            desk.call("registered", broker=Apache.broker_name, address=address)
        )

    wait_until(ready, READY_S_MAX, "Apache serves, and the name server knows it")
    desk.call("connect", broker=Apache.broker_name, address=address)
