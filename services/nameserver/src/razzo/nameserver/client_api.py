"""The nameserver's client port: what it answers by itself.

QueryRoute, QueryAssignment, Telemetry, Heartbeat and NotifyClientTermination are answered here, from what the registry
knows (client-protocol.md 0.3); `forwarded_api` sends the rest on to brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.door.methods import Call, MethodTable
from razzo.nameserver.broker_calls import BrokerCalls
from razzo.nameserver.calls import bidi_with_grpc_status, decoded, with_status
from razzo.nameserver.cluster import Cluster
from razzo.nameserver.first_sight import FirstSight
from razzo.nameserver.topic_maker import TopicMaker
from razzo.protocol import methods
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault
from razzo.protocol.names import check_group, check_topic
from razzo.runtime.addresses import AddressMode, Dialled, Direct, OwnAddresses, Through, choose
from razzo.runtime.clients import ClientTable, Said
from razzo.runtime.forwarding import Metadata, carried_metadata, metadata_of
from razzo.runtime.logs import fields
from razzo.runtime.requests import Caller, caller_of, effective_name
from razzo.runtime.status import ok
from razzo.runtime.telemetry import TelemetryDesk
from razzo.v1 import config_pb2

log = logging.getLogger(__name__)

FIRST_SIGHT_S_MAX = 1.0
"""Longest wait for brokers to hear of a group; then the client is answered, and the next look tries again."""
NOTICE_S_MAX = 1.0
"""For a heartbeat or a goodbye to reach a broker."""
ANSWER_RESERVE_S = 0.5
"""Waiting for something ends this long before the client's deadline."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """How routes name brokers."""

    mode: AddressMode
    own: Callable[[], OwnAddresses]
    """Asked at each call: the ports are known after the start."""


class ClientApi:
    """Used on one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: BrokerCalls,
        clients: ClientTable,
        first_sight: FirstSight,
        maker: TopicMaker,
        addresses: Addresses,
        clock_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._clients = clients
        self._first_sight = first_sight
        self._maker = maker
        self._addresses = addresses
        self._clock_ms = clock_ms
        self.desk = TelemetryDesk(self._group, self._settings, self._stream_opened, self._stream_lost)
        cluster.on_change(lambda: first_sight.retain(cluster.connected()))

    def mount(self, table: MethodTable) -> None:
        table.unary(methods.QUERY_ROUTE, with_status(service_pb2.QueryRouteResponse, self.query_route))
        table.unary(methods.QUERY_ASSIGNMENT, with_status(service_pb2.QueryAssignmentResponse, self.query_assignment))
        table.unary(methods.HEARTBEAT, with_status(service_pb2.HeartbeatResponse, self.heartbeat))
        table.unary(
            methods.NOTIFY_CLIENT_TERMINATION,
            with_status(service_pb2.NotifyClientTerminationResponse, self.notify_client_termination),
        )
        table.bidi(methods.TELEMETRY, bidi_with_grpc_status(self.desk.handle))

    def expire_clients(self) -> None:
        """Forgets clients that are gone; brokers do so by themselves."""
        for client in self._clients.expire(self._clock_ms()):
            log.info("client expired", extra=fields(client=client.client_id, group=client.group))

    async def query_route(self, request: bytes, call: Call) -> bytes:
        query = decoded(service_pb2.QueryRouteRequest, request)
        caller = caller_of(call)
        topic = effective_name(query.topic, caller.namespace)
        check_topic(topic)
        await self._maker.ensure(topic, call.time_remaining())
        self._must_have_brokers()
        self._clients.uses(caller.client_id, topic, self._clock_ms())
        return self._cluster.book.route(topic, query.topic, self._choose(topic, query.endpoints, call))

    async def query_assignment(self, request: bytes, call: Call) -> bytes:
        query = decoded(service_pb2.QueryAssignmentRequest, request)
        caller = caller_of(call)
        topic = effective_name(query.topic, caller.namespace)
        check_topic(topic)
        group = effective_name(query.group, caller.namespace)
        check_group(group)
        await self._maker.settle(topic, call.time_remaining())
        self._must_have_brokers()
        answer = self._cluster.book.assignment(topic, query.topic, self._choose(topic, query.endpoints, call))
        self._clients.uses(caller.client_id, topic, self._clock_ms(), group)
        await self._tell_group(group, topic, request, carried_metadata(call), _limited(call, FIRST_SIGHT_S_MAX))
        return answer

    async def heartbeat(self, request: bytes, call: Call) -> bytes:
        """OK for every client, known or not; told to the brokers of the client's topics, where its leases are."""
        beat = decoded(service_pb2.HeartbeatRequest, request)
        caller = caller_of(call)
        group = effective_name(beat.group, caller.namespace) if beat.group.name else ""
        client = self._clients.heartbeat(caller.client_id, beat.client_type, group, self._clock_ms(), caller.peer)
        names = {
            serving.broker.broker_name
            for topic in client.all_topics()
            for serving in self._cluster.book.serving(topic)
        }
        brokers = [broker for broker in self._cluster.book.masters() if broker.broker_name in names]
        self._brokers.tell_in_background(brokers, call.path, request, carried_metadata(call), NOTICE_S_MAX)
        return service_pb2.HeartbeatResponse(status=ok()).SerializeToString()

    async def notify_client_termination(self, request: bytes, call: Call) -> bytes:
        """OK in any case; told to every broker, because the client may be known on any."""
        decoded(service_pb2.NotifyClientTerminationRequest, request)
        caller = caller_of(call)
        self._clients.terminated(caller.client_id)
        results = await self._brokers.ask_all(
            self._cluster.connected(), call.path, request, carried_metadata(call), _limited(call, NOTICE_S_MAX)
        )
        for result in results:
            if result.error is not None:
                name = result.broker.broker_name
                log.info("goodbye not passed on: %s", result.error.message, extra=fields(broker=name))
        return service_pb2.NotifyClientTerminationResponse(status=ok()).SerializeToString()

    # --- Telemetry

    def _group(self, name: str) -> config_pb2.GroupConfig | None:
        return self._cluster.book.group(name)

    async def _settings(self, caller: Caller, settings: definition_pb2.Settings, said: Said) -> None:
        self._clients.settings(caller.client_id, said, self._clock_ms(), caller.peer)
        if not said.group:
            return
        metadata = metadata_of(caller)
        group = definition_pb2.Resource(name=said.group)
        await asyncio.gather(
            *(
                self._tell_group(
                    said.group,
                    topic,
                    service_pb2.QueryAssignmentRequest(
                        topic=definition_pb2.Resource(name=topic), group=group, endpoints=settings.access_point
                    ).SerializeToString(),
                    metadata,
                    FIRST_SIGHT_S_MAX,
                )
                for topic in said.subscriptions
            )
        )

    def _stream_opened(self, client_id: str) -> None:
        self._clients.stream_opened(client_id, self._clock_ms())

    def _stream_lost(self, client_id: str) -> None:
        self._clients.stream_lost(client_id, self._clock_ms())

    # --- what the handlers share

    async def _tell_group(self, group: str, topic: str, query: bytes, metadata: Metadata, timeout_s: float) -> None:
        """Brokers of the topic that have not heard of the group yet are asked for its assignment, which fixes the
        group's position there. Once told, they are not told again."""
        brokers = self._first_sight.to_tell(group, topic, self._cluster.book.serving(topic))
        if not brokers:
            return
        for result in await self._brokers.ask_all(brokers, methods.QUERY_ASSIGNMENT, query, metadata, timeout_s):
            refused = _refusal(result.answer) if result.answer is not None else str(result.error)
            if refused is None:
                self._first_sight.told(group, topic, result.broker)
            else:
                name = result.broker.broker_name
                log.warning("group not told: %s", refused, extra=fields(group=group, topic=topic, broker=name))

    def _choose(self, topic: str, endpoints: definition_pb2.Endpoints, call: Call) -> Direct | Through:
        serving = [each.broker for each in self._cluster.book.serving(topic)]
        dialled = Dialled(endpoints, call.secure, call.peer)
        return choose(self._addresses.mode, self._addresses.own(), dialled, serving)

    def _must_have_brokers(self) -> None:
        if not self._cluster.book.masters():
            raise BrokerFault(Code.INTERNAL_SERVER_ERROR, "no broker is registered with this nameserver")


def _limited(call: Call, seconds_max: float) -> float:
    """`seconds_max`, or less when the client's deadline is near."""
    remaining = call.time_remaining()
    return seconds_max if remaining is None else max(0.0, min(seconds_max, remaining - ANSWER_RESERVE_S))


def _refusal(answer: bytes) -> str | None:
    """Why a broker refused an assignment, or None when it did not."""
    status = service_pb2.QueryAssignmentResponse.FromString(answer).status
    return None if int(status.code) == Code.OK else f"{status.code} {status.message}"
