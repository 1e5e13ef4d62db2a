"""Core: answers of QueryRoute and QueryAssignment, from what the registry knows.

Clients compare serialized answers of different nodes every few seconds and drop their queues when a byte differs, so an
answer is a pure function of the cluster view, the request and the addresses chosen: masters only, ordered by broker
name, queue ids from 0 without gaps, serialized deterministically (client-protocol.md 0.5, 1.3, 3.1, 3.2, 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime.addresses import Direct, Through, client_address, endpoints_of
from razzo.v1 import config_pb2, registry_pb2

_OK = definition_pb2.Status(code=definition_pb2.Code.OK, message="OK")
_Answer: TypeAlias = service_pb2.QueryRouteResponse | service_pb2.QueryAssignmentResponse
Permission = definition_pb2.Permission
MessageType = definition_pb2.MessageType
TopicType = config_pb2.TopicType

PERMISSION_WRITE = 2
PERMISSION_READ = 4
MASTER_ID = 0
ANY_QUEUE = -1
"""Queue id of an assignment: the consumer takes from all queues of the broker."""
ANSWERS_KEPT_MAX = 10_000
"""Answers kept ready by one book; above it all are dropped and made again when asked for."""

ACCEPTED_TYPES: Mapping[int, tuple[int, ...]] = {
    TopicType.TOPIC_TYPE_UNSPECIFIED: (MessageType.NORMAL,),
    TopicType.NORMAL: (MessageType.NORMAL,),
    TopicType.FIFO: (MessageType.FIFO,),
    TopicType.DELAY: (MessageType.DELAY,),
    TopicType.TRANSACTION: (MessageType.TRANSACTION,),
    TopicType.LITE: (MessageType.LITE,),
    TopicType.PRIORITY: (MessageType.PRIORITY,),
    TopicType.MIXED: (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION),
}
"""Message types that a topic takes. A topic without a type is a NORMAL one, as in RocketMQ."""


class Serving(NamedTuple):
    """A master and its configuration of one topic."""

    broker: registry_pb2.BrokerInfo
    topic: config_pb2.TopicConfig

    @property
    def readable(self) -> bool:
        return bool(self.topic.permission & PERMISSION_READ) and self.topic.read_queues > 0

    @property
    def writable(self) -> bool:
        return bool(self.topic.permission & PERMISSION_WRITE) and self.topic.write_queues > 0


class RouteBook:
    """What one cluster view says about topics, groups and brokers. Immutable; made anew when the view changes."""

    def __init__(self, view: registry_pb2.ClusterView) -> None:
        self.view = view
        masters = sorted(
            (broker for broker in view.brokers if broker.broker_id == MASTER_ID),
            key=lambda broker: (broker.broker_name, broker.cluster),
        )
        self._masters = {broker.broker_name: broker for broker in masters}
        self._topics: dict[str, list[Serving]] = {}
        self._groups: dict[str, config_pb2.GroupConfig] = {}
        for broker in self._masters.values():
            for topic in broker.topics:
                self._topics.setdefault(topic.name, []).append(Serving(broker, topic))
            for group in broker.groups:
                self._groups.setdefault(group.name, group)
        self._answers: dict[tuple[object, ...], bytes] = {}

    def masters(self) -> list[registry_pb2.BrokerInfo]:
        """All masters, by broker name."""
        return list(self._masters.values())

    def master(self, broker_name: str) -> registry_pb2.BrokerInfo | None:
        return self._masters.get(broker_name)

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def serving(self, topic: str) -> Sequence[Serving]:
        """The masters that have the topic, by broker name; empty when there is none. Takes the effective name."""
        return self._topics.get(topic, ())

    def group(self, name: str) -> config_pb2.GroupConfig | None:
        """A consumer group's configuration: that of the first broker, by name, that has it."""
        return self._groups.get(name)

    def route(self, topic: str, echo: definition_pb2.Resource, addresses: Direct | Through) -> bytes:
        """The QueryRouteResponse. `topic` is the effective name, `echo` the Resource as the client sent it.

        RequestRefused: TOPIC_NOT_FOUND, FORBIDDEN when nobody may read or write it, ILLEGAL_ACCESS_POINT when no broker
        of it has an address of the kind asked for.
        """
        key = ("route", topic, *_key(echo, addresses))
        return self._answers.get(key) or self._keep(key, self._route(topic, echo, addresses))

    def assignment(self, topic: str, echo: definition_pb2.Resource, addresses: Direct | Through) -> bytes:
        """The QueryAssignmentResponse: one assignment for each broker where the topic is readable.

        The same for every consumer of every group: consumers compete by receiving. RequestRefused as for `route`.
        """
        key = ("assignment", topic, *_key(echo, addresses))
        return self._answers.get(key) or self._keep(key, self._assignment(topic, echo, addresses))

    def _route(
        self, topic: str, echo: definition_pb2.Resource, addresses: Direct | Through
    ) -> service_pb2.QueryRouteResponse:
        serving = self._known(topic)
        listed = [each for each in serving if each.readable and each.writable]
        permission = Permission.READ_WRITE
        if not listed:
            # Some clients (Go, Rust) use every queue they see, so what can only be read, or only be written, is shown
            # when there is nothing else.
            listed = [each for each in serving if each.readable]
            permission = Permission.READ
        if not listed:
            listed = [each for each in serving if each.writable]
            permission = Permission.WRITE
        if not listed:
            raise RequestRefused(Code.FORBIDDEN, f"the topic {topic!r} can be neither read nor written")
        answer = service_pb2.QueryRouteResponse(status=_OK)
        for broker, config in self._addressed(listed, addresses):
            endpoints = _endpoints(broker, addresses)
            accepted = ACCEPTED_TYPES.get(config.type, ())
            for queue_id in range(_queues(config, permission)):
                queue = answer.message_queues.add(id=queue_id, permission=permission, accept_message_types=accepted)
                queue.topic.CopyFrom(echo)
                queue.broker.name, queue.broker.id = broker.broker_name, MASTER_ID
                queue.broker.endpoints.CopyFrom(endpoints)
        return answer

    def _assignment(
        self, topic: str, echo: definition_pb2.Resource, addresses: Direct | Through
    ) -> service_pb2.QueryAssignmentResponse:
        listed = [each for each in self._known(topic) if each.readable]
        if not listed:
            raise RequestRefused(Code.FORBIDDEN, f"the topic {topic!r} cannot be read")
        answer = service_pb2.QueryAssignmentResponse(status=_OK)
        for serving in self._addressed(listed, addresses):
            queue = answer.assignments.add().message_queue
            queue.topic.CopyFrom(echo)
            queue.id = ANY_QUEUE
            queue.permission = Permission.READ_WRITE if serving.writable else Permission.READ
            queue.broker.name, queue.broker.id = serving.broker.broker_name, MASTER_ID
            queue.broker.endpoints.CopyFrom(_endpoints(serving.broker, addresses))
        return answer

    def _known(self, topic: str) -> Sequence[Serving]:
        serving = self.serving(topic)
        if not serving:
            raise RequestRefused(Code.TOPIC_NOT_FOUND, f"there is no topic {topic!r}")
        return serving

    def _addressed(self, serving: list[Serving], addresses: Direct | Through) -> list[Serving]:
        if isinstance(addresses, Through):
            return serving
        found = [each for each in serving if client_address(each.broker, addresses.secure).port]
        if not found:
            kind = "TLS" if addresses.secure else "plaintext"
            raise RequestRefused(Code.ILLEGAL_ACCESS_POINT, f"no broker of the topic serves {kind}")
        return found

    def _keep(self, key: tuple[object, ...], answer: _Answer) -> bytes:
        if len(self._answers) >= ANSWERS_KEPT_MAX:
            self._answers.clear()
        encoded = self._answers[key] = answer.SerializeToString(deterministic=True)
        return encoded


def _queues(config: config_pb2.TopicConfig, permission: int) -> int:
    if permission == Permission.READ:
        return config.read_queues
    if permission == Permission.WRITE:
        return config.write_queues
    return min(config.read_queues, config.write_queues)


def _endpoints(broker: registry_pb2.BrokerInfo, addresses: Direct | Through) -> definition_pb2.Endpoints:
    if isinstance(addresses, Through):
        return addresses.endpoints
    address = client_address(broker, addresses.secure)
    return endpoints_of(address.host, address.port)


def _key(echo: definition_pb2.Resource, addresses: Direct | Through) -> tuple[object, ...]:
    if isinstance(addresses, Through):
        return echo.resource_namespace, echo.name, addresses.endpoints.SerializeToString(deterministic=True)
    return echo.resource_namespace, echo.name, addresses.secure
