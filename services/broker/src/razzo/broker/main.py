"""The broker process: everything is built here and nowhere else; start is a list, stop the same list backwards."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from functools import partial

from razzo.broker import identity
from razzo.broker.admin_api import AdminApi
from razzo.broker.announcer import Announcer
from razzo.broker.broker import Broker, BrokerOptions
from razzo.broker.client_api import ClientApi
from razzo.broker.config_wire import group_config, topic_config
from razzo.broker.dead_letters import DeadLetters
from razzo.broker.delivery import Delivery
from razzo.broker.delivery_values import DeliveryLimits
from razzo.broker.foreign import Foreign
from razzo.broker.groups import GroupTable
from razzo.broker.handles import ReceiptHandles
from razzo.broker.hot_acks import HotAcks
from razzo.broker.hot_sends import HotSends
from razzo.broker.long_polls import LongPolls
from razzo.broker.peer_api import peer_table
from razzo.broker.pulling import PullDesk
from razzo.broker.receiving import ReceiveDesk
from razzo.broker.sending import SendDesk
from razzo.broker.settings import BrokerSettings, FlushChoice
from razzo.broker.settling import AckDesk, SettleDesk
from razzo.broker.state_log import StateLog
from razzo.broker.topics import TopicTable
from razzo.broker.unanswered import Unanswered
from razzo.door import open_server
from razzo.door.server import DoorLimits, TlsFiles
from razzo.protocol import methods
from razzo.protocol.names import is_system_topic
from razzo.runtime.certificates import given_or_self_signed
from razzo.runtime.clients import ClientTable
from razzo.runtime.forwarding import Forwarder, peer_address
from razzo.runtime.health import HealthBoard
from razzo.runtime.lifecycle import Lifecycle, StartFailed, run_service
from razzo.runtime.logs import configure, fields
from razzo.runtime.peer_server import PeerServer
from razzo.runtime.settings import load_or_exit
from razzo.storage import CorruptStore, FlushMode, Store, StoreError, StoreLocked, StoreSettings, siphash24
from razzo.v1 import registry_pb2

log = logging.getLogger(__name__)

CLIENT_SCAN_S = 5.0
SWITCH_INTERVAL_S = 0.0005
"""How long the loop may keep the interpreter from the flusher thread that comes back from fdatasync (Python's own:
5 ms); every answer of a group commit waits for that thread."""
GC_THRESHOLDS = (20_000, 20, 50)
"""Objects between two looks for cycles, and the two factors of the older generations. With Python's own 700 a fifth of
a receive goes into walking leases, which never form cycles."""
STORE_PORT_DEFAULT = 10911
"""Names this broker in offset message ids when the client port is any free one."""


def main() -> None:
    settings = load_or_exit(BrokerSettings, sys.argv[1:], os.environ)
    logging_ = configure(settings.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()  # what was imported stays
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        code = run_service(partial(compose, settings))
    finally:
        logging_.close()
    sys.exit(code)


def clock_ms() -> int:
    """Unix milliseconds: leases and positions outlive the process, so its clock is the wall's."""
    return time.time_ns() // 1_000_000


async def compose(settings: BrokerSettings, life: Lifecycle) -> Mapping[str, object]:
    """Builds and starts everything; what the ready line says."""
    store = Store(settings.data, store_settings(settings))
    await life.start("store", partial(_open, store, settings), partial(asyncio.to_thread, store.close))
    broker = await _recovered(settings, store)
    forwarder = Forwarder()
    info = _Info(settings, broker)
    announcer = Announcer(
        settings.nameservers,
        info,
        settings.beat_interval_s,
        settings.register_timeout_s,
        lambda view: forwarder.retain(peer_address(each) for each in view.brokers),
    )
    unanswered = Unanswered(broker, settings.waiting_sends_max)
    client_api = _client_api(broker, announcer, forwarder, _send_desk(broker, unanswered, settings))
    health = HealthBoard(methods.MESSAGING_SERVICE, methods.CLUSTER_ADMIN_SERVICE)
    peers = PeerServer(peer_table(client_api, AdminApi(broker, announcer.own), health))
    door = open_server(settings.door.value, client_api.table(), DoorLimits(), _tls(settings))
    ports: dict[str, Mapping[str, object]] = {}

    async def start_broker() -> None:
        broker.start(announcer.changed)

    async def start_peers() -> None:
        info.peer_port = await peers.start(settings.peer_host, settings.peer_port)
        ports["peer"] = ports["health"] = {"host": settings.peer_host, "port": info.peer_port}

    async def start_door() -> None:
        bound = await door.start(settings.client_host, settings.client_port, settings.client_tls_port or None)
        info.client_port, info.tls_port = bound.plain_port, bound.tls_port
        ports["client"] = {"host": bound.host, "port": bound.plain_port, "tls_port": bound.tls_port}

    async def end_waiting() -> None:
        health.set_all(False)
        broker.long_polls.end_all()

    await life.start("broker", start_broker, broker.stop)
    life.on_stop("sends", unanswered.drain)
    life.on_stop("channels to brokers", forwarder.close)
    await life.start("peer port", start_peers, partial(peers.stop, settings.stop_grace_s))
    await life.start("client port", start_door, partial(door.stop, settings.stop_grace_s))
    life.on_stop("telemetry streams", client_api.telemetry.close)
    life.on_stop("health watchers", health.close)
    life.on_stop("waiting receives", end_waiting)
    await life.start("nameservers", announcer.start, announcer.stop)
    life.spawn("clients", _watch_clients(broker, settings.client_expiry_ms))
    life.spawn("files", _write_files(broker, settings.position_file_interval_s))
    life.spawn("retention", _retain(store, settings.retention_interval_s))
    health.set_all(True)
    return {"service": settings.service, "name": broker.options.name, **ports}


async def _recovered(settings: BrokerSettings, store: Store) -> Broker:
    """The broker with the state that its data directory holds."""
    me = identity.load(settings.data, settings.broker_name)

    topics = TopicTable(siphash24, settings.topics_max)
    groups = GroupTable(settings.groups_max)
    delivery = Delivery(DeliveryLimits(leases_per_queue_max=settings.leases_per_queue_max))
    state = StateLog(store, settings.data, topics, groups, delivery, clock_ms, settings.snapshot_records)
    recovered = await asyncio.to_thread(state.recover)
    log.info(
        "state recovered: %s, %s, %s", topics.describe(), groups.describe(), delivery.describe(),
        extra=fields(source=recovered.source, records=recovered.records, events=recovered.events),
    )  # fmt: skip
    return Broker(
        BrokerOptions(
            me.name,
            settings.auto_create_topics,
            settings.auto_create_topic_queues,
            settings.auto_create_groups,
            settings.flush_timeout_ms / 1000,
        ),
        store,
        topics,
        groups,
        delivery,
        state,
        ReceiptHandles(me.name, me.secret, siphash24),
        ClientTable(settings.client_expiry_ms),
        LongPolls(settings.waiting_receives_max, settings.waiting_receives_per_queue_max),
        clock_ms,
    )


def _send_desk(broker: Broker, unanswered: Unanswered, settings: BrokerSettings) -> SendDesk:
    """Both ways in for SendMessage."""
    sync = settings.flush_mode is FlushChoice.SYNC
    hot = HotSends(broker, unanswered, wait_for_flush=sync)
    return SendDesk(broker, unanswered, wait_for_flush=sync, first=hot.first)


def _client_api(broker: Broker, announcer: Announcer, forwarder: Forwarder, sends: SendDesk) -> ClientApi:
    dead_letters = DeadLetters(broker)
    foreign = Foreign(broker.options.name, announcer.book, forwarder)
    return ClientApi(
        broker,
        announcer.book,
        foreign,
        sends,
        AckDesk(broker, foreign, HotAcks(broker).first),
        ReceiveDesk(broker, dead_letters),
        SettleDesk(broker, dead_letters),
        PullDesk(broker),
    )


def store_settings(settings: BrokerSettings) -> StoreSettings:
    return StoreSettings(
        commit_log_file_bytes=settings.commit_log_file_bytes,
        consume_queue_file_units=settings.consume_queue_file_units,
        index_slots=settings.index_slots,
        index_units=settings.index_units,
        flush_mode=FlushMode.SYNC if settings.flush_mode is FlushChoice.SYNC else FlushMode.ASYNC,
        flush_interval_ms=settings.flush_interval_ms,
        sync_flush_timeout_ms=settings.flush_timeout_ms,
        retention_hours=settings.retention_hours,
        store_host=(_store_ip(settings.client_address), settings.client_port or STORE_PORT_DEFAULT),
    )


async def _open(store: Store, settings: BrokerSettings) -> None:
    try:
        report = await asyncio.to_thread(store.open)
    except StoreLocked as error:
        raise StartFailed(f"another process uses {settings.data}: {error}") from error
    except CorruptStore as error:
        raise StartFailed(f"the store in {settings.data} is damaged: {error}") from error
    log.info("store opened: %s", report, extra=fields(data=settings.data))


def _store_ip(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass  # a name
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


def _tls(settings: BrokerSettings) -> TlsFiles | None:
    if not settings.client_tls:
        return None
    hosts = (settings.client_host, settings.client_address)
    directory = settings.data / "config" / "razzo"
    return TlsFiles(*given_or_self_signed(directory, hosts, settings.tls_certificate, settings.tls_private_key))


class _Info:
    """What this broker tells nameservers of itself; complete once both ports are bound."""

    def __init__(self, settings: BrokerSettings, broker: Broker) -> None:
        self._settings = settings
        self._broker = broker
        self._incarnation = uuid.uuid4().hex
        self.client_port = 0
        self.tls_port: int | None = None
        self.peer_port = 0

    def __call__(self) -> registry_pb2.BrokerInfo:
        settings = self._settings
        info = registry_pb2.BrokerInfo(
            cluster=settings.cluster_name,
            broker_name=self._broker.options.name,
            broker_id=settings.broker_id,
            incarnation=self._incarnation,
            client_plain=registry_pb2.Address(host=settings.client_address, port=self.client_port),
            peer=registry_pb2.Address(host=settings.peer_address, port=self.peer_port),
            topics=[topic_config(topic) for topic in self._broker.topics if not is_system_topic(topic.name)],
            groups=[group_config(group) for group in self._broker.groups],
        )
        if self.tls_port is not None:
            info.client_tls.host, info.client_tls.port = settings.client_address, self.tls_port
        return info


# --- loops


async def _watch_clients(broker: Broker, expiry_ms: int) -> None:
    """Looks for clients that fell silent."""
    interval_s = min(CLIENT_SCAN_S, expiry_ms / 4_000)
    while True:
        await asyncio.sleep(interval_s)
        broker.clients_gone(broker.clients.expire(broker.now_ms()))


async def _write_files(broker: Broker, interval_s: float) -> None:
    while True:
        await broker.snapshot_if_due()
        await broker.write_files()
        await asyncio.sleep(interval_s)


async def _retain(store: Store, interval_s: float) -> None:
    """Deletes what is old, or what does not fit on the disk. Raises StoreError, and so ends the process, when the store
    has failed for good: a broker that can store nothing must not stay in the routes."""
    while True:
        await asyncio.sleep(interval_s)
        refusal = store.describe()["refusal"]
        if refusal is not None:
            raise StoreError(f"the store has failed: {refusal}")
        try:
            report = store.run_retention(clock_ms())
        except (OSError, StoreError):
            log.exception("retention failed")
        else:
            log.debug("retention: %s", report)
