"""The nameserver process: everything is built here and nowhere else; start is a list, stop the same list backwards."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from functools import partial

from apache.rocketmq.v2 import definition_pb2
from razzo.door import open_server
from razzo.door.methods import MethodTable
from razzo.door.server import Bound, DoorLimits, TlsFiles
from razzo.nameserver.admin_api import AdminApi
from razzo.nameserver.broker_calls import BrokerCalls
from razzo.nameserver.calls import stream_with_grpc_status, unary_with_grpc_status
from razzo.nameserver.client_api import Addresses, ClientApi
from razzo.nameserver.cluster import Cluster
from razzo.nameserver.first_sight import FirstSight
from razzo.nameserver.forwarded_api import ForwardedApi
from razzo.nameserver.interfaces import own_hosts
from razzo.nameserver.peer_api import RegistryApi
from razzo.nameserver.placement import Placement
from razzo.nameserver.registry import Registry
from razzo.nameserver.settings import NameserverSettings
from razzo.nameserver.topic_maker import MakerRules, TopicMaker
from razzo.protocol import methods
from razzo.runtime.addresses import OwnAddresses, endpoints_of
from razzo.runtime.certificates import given_or_self_signed
from razzo.runtime.clients import ClientTable
from razzo.runtime.forwarding import Forwarder
from razzo.runtime.health import HealthBoard
from razzo.runtime.lifecycle import Lifecycle, run_service
from razzo.runtime.logs import configure
from razzo.runtime.peer_server import PeerServer
from razzo.runtime.settings import load_or_exit

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


def main() -> None:
    settings = load_or_exit(NameserverSettings, sys.argv[1:], os.environ)
    logging = configure(settings.log_level)
    try:
        code = run_service(partial(compose, settings))
    finally:
        logging.close()
    sys.exit(code)


def clock_ms() -> int:
    """Milliseconds of a clock that never steps."""
    return time.monotonic_ns() // 1_000_000


async def compose(settings: NameserverSettings, life: Lifecycle) -> Mapping[str, object]:
    """Builds and starts everything; what the ready line says."""
    cluster = Cluster(Registry(settings.broker_expiry_ms), clock_ms)
    brokers = BrokerCalls(cluster, Forwarder())
    clients = ClientTable(settings.client_expiry_ms)
    rules = MakerRules(
        settings.auto_create_topics, settings.auto_create_topic_queues, clock_ms() + settings.settle_ms
    )
    maker = TopicMaker(cluster, brokers, rules, clock_ms)
    own = _OwnAddresses(settings)
    client_api = ClientApi(
        cluster, brokers, clients, FirstSight(), maker, Addresses(settings.address_mode, own), clock_ms
    )
    forwarded_api = ForwardedApi(cluster, brokers, clients, Placement(), clock_ms)
    admin_api = AdminApi(cluster, brokers)
    registry_api = RegistryApi(cluster)
    health = HealthBoard(methods.MESSAGING_SERVICE, methods.REGISTRY_SERVICE, methods.CLUSTER_ADMIN_SERVICE)

    client_table = MethodTable()
    client_api.mount(client_table)
    forwarded_api.mount(client_table)
    if settings.admin_on_client_port:
        admin_api.mount(client_table)
    client_table.unary(methods.HEALTH_CHECK, unary_with_grpc_status(health.check))
    client_table.server_stream(methods.HEALTH_WATCH, stream_with_grpc_status(health.watch))

    peer_table = MethodTable()
    registry_api.mount(peer_table)
    admin_api.mount(peer_table)
    peer_table.unary(methods.HEALTH_CHECK, health.check)
    peer_table.server_stream(methods.HEALTH_WATCH, health.watch)

    grace_s = settings.stop_grace_ms / 1000
    reflected = (methods.REGISTRY_SERVICE, methods.CLUSTER_ADMIN_SERVICE) if settings.reflection else ()
    peer_server = PeerServer(peer_table, reflected=reflected)
    door = open_server(settings.door.value, client_table, DoorLimits(), _tls(settings))
    ports: dict[str, Mapping[str, object]] = {}

    async def start_peer_server() -> None:
        port = await peer_server.start(settings.peer_host, settings.peer_port)
        ports["peer"] = ports["health"] = {"host": settings.peer_host, "port": port}

    async def start_door() -> None:
        bound = await door.start(settings.client_host, settings.client_port, settings.client_tls_port or None)
        own.bound(bound)
        ports["client"] = {"host": bound.host, "port": bound.plain_port, "tls_port": bound.tls_port}

    life.on_stop("channels to brokers", brokers.close)
    life.on_stop("topics in making", maker.close)
    await life.start("peer port", start_peer_server, partial(peer_server.stop, grace_s))
    await life.start("client port", start_door, partial(door.stop, grace_s))
    life.spawn("scan", _scan(settings.scan_interval_ms / 1000, registry_api, client_api))
    life.on_stop("streams of brokers", registry_api.close)
    life.on_stop("streams of clients", client_api.desk.close)
    health.set_all(True)
    life.on_stop("health", health.close)
    return {"service": settings.service, **ports}


async def _scan(interval_s: float, registry_api: RegistryApi, client_api: ClientApi) -> None:
    """Looks for brokers and clients that fell silent."""
    while True:
        await asyncio.sleep(interval_s)
        registry_api.end_silent()
        client_api.expire_clients()


def _tls(settings: NameserverSettings) -> TlsFiles | None:
    if not settings.client_tls:
        return None
    hosts = (settings.client_host, settings.advertise_host, *(host.split(":")[0] for host in settings.inside_hosts))
    files = given_or_self_signed(settings.data, hosts, settings.tls_certificate, settings.tls_private_key)
    return TlsFiles(*files)


class _OwnAddresses:
    """By what this nameserver can be dialled; complete once the client port is bound."""

    def __init__(self, settings: NameserverSettings) -> None:
        self._settings = settings
        self._value = OwnAddresses(inside=settings.inside_hosts)

    def __call__(self) -> OwnAddresses:
        return self._value

    def bound(self, bound: Bound) -> None:
        settings = self._settings
        listening = settings.client_host.strip("[]").lower()
        ports = frozenset(port for port in (bound.plain_port, bound.tls_port) if port)
        hosts = own_hosts() if listening in WILDCARD_HOSTS else frozenset({listening}) - LOOPBACK_HOSTS
        inside = tuple(host.lower() for host in settings.inside_hosts)
        plain = self._advertised(bound.plain_port)
        secure = self._advertised(bound.tls_port or bound.plain_port)
        self._value = OwnAddresses(ports, hosts, inside, plain, secure)

    def _advertised(self, port: int) -> definition_pb2.Endpoints:
        settings = self._settings
        host = settings.advertise_host or settings.client_host
        if host.strip("[]") in WILDCARD_HOSTS:
            host = next(iter(sorted(own_hosts())), "localhost")
        return endpoints_of(host, settings.advertise_port or port)
