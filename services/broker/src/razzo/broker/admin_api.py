"""razzo.v1.ClusterAdmin for this broker, on its peer port (proto/razzo/v1/admin.proto).

Refusals are gRPC statuses: INVALID_ARGUMENT for what is never right, ALREADY_EXISTS, NOT_FOUND, FAILED_PRECONDITION for
what is not right now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from razzo.broker import config_wire
from razzo.broker.broker import Broker
from razzo.broker.groups import GroupExists
from razzo.broker.outgoing import message_id_of
from razzo.broker.topics import Topic, TopicExists
from razzo.door.methods import Call, GrpcStatus, MethodTable, RpcError
from razzo.protocol import limits, methods
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RequestRefused
from razzo.protocol.names import check_topic, is_system_topic
from razzo.runtime.requests import request_id_of
from razzo.runtime.status import CallRefused, refusal_of
from razzo.storage import StoredMessage, parse_offset_message_id
from razzo.v1 import admin_pb2, registry_pb2

FIND_DEFAULT = 32
FIND_MAX = 256
FIND_BODY_BYTES_MAX = 32 << 20
"""Bodies in one answer; messages beyond are left out."""
ALL_TIME_MS = (1 << 63) - 1


class AdminApi:
    def __init__(self, broker: Broker, describe: Callable[[], registry_pb2.BrokerInfo]) -> None:
        self._broker = broker
        self._describe = describe

    def table(self) -> MethodTable:
        table = MethodTable()
        for path, request, handler in (
            (methods.PUT_TOPIC, admin_pb2.PutTopicRequest, self.put_topic),
            (methods.DELETE_TOPIC, admin_pb2.DeleteTopicRequest, self.delete_topic),
            (methods.LIST_TOPICS, admin_pb2.ListTopicsRequest, self.list_topics),
            (methods.PUT_GROUP, admin_pb2.PutGroupRequest, self.put_group),
            (methods.DELETE_GROUP, admin_pb2.DeleteGroupRequest, self.delete_group),
            (methods.LIST_GROUPS, admin_pb2.ListGroupsRequest, self.list_groups),
            (methods.RESET_OFFSET, admin_pb2.ResetOffsetRequest, self.reset_offset),
            (methods.FIND_MESSAGES, admin_pb2.FindMessagesRequest, self.find_messages),
            (methods.DESCRIBE_BROKERS, admin_pb2.DescribeBrokersRequest, self.describe_brokers),
        ):
            table.unary(path, _unary(request, handler))
        return table

    # --- topics

    async def put_topic(self, request: admin_pb2.PutTopicRequest) -> admin_pb2.PutTopicResponse:
        broker = self._broker
        event = broker.topics.put(config_wire.topic_of(request.topic), update=request.update)
        await broker.change(event, until_known=True)
        broker.subscribe_waiting(event.topic)
        return admin_pb2.PutTopicResponse(topic=config_wire.topic_config(event.topic))

    async def delete_topic(self, request: admin_pb2.DeleteTopicRequest) -> admin_pb2.DeleteTopicResponse:
        broker = self._broker
        await broker.change(broker.topics.delete(request.name), until_known=True)
        broker.store.delete_topic(request.name)
        return admin_pb2.DeleteTopicResponse()

    async def list_topics(self, request: admin_pb2.ListTopicsRequest) -> admin_pb2.ListTopicsResponse:
        response = admin_pb2.ListTopicsResponse()
        known = list(self._broker.topics)
        if request.all:
            names = {topic.name for topic in known}
            for name in sorted(self._broker.store.topics()):
                if name not in names:
                    queues = max(self._broker.store.queue_ids(name), default=-1) + 1
                    known.append(Topic(name, queues, queues))
        for topic in known:
            if request.all or not is_system_topic(topic.name):
                status = response.topics.add(broker_name=self._broker.options.name)
                status.topic.CopyFrom(config_wire.topic_config(topic))
                for queue_id in range(topic.read_queues):
                    first, end = self._broker.store.queue_range(topic.name, queue_id)
                    status.queues.add(queue_id=queue_id, min_offset=first, max_offset=end)
        return response

    # --- consumer groups

    async def put_group(self, request: admin_pb2.PutGroupRequest) -> admin_pb2.PutGroupResponse:
        event = self._broker.groups.put(config_wire.group_of(request.group), update=request.update)
        await self._broker.change(event, until_known=True)
        return admin_pb2.PutGroupResponse(group=config_wire.group_config(event.group))

    async def delete_group(self, request: admin_pb2.DeleteGroupRequest) -> admin_pb2.DeleteGroupResponse:
        await self._broker.change(self._broker.groups.delete(request.name), until_known=True)
        return admin_pb2.DeleteGroupResponse()

    async def list_groups(self, _request: admin_pb2.ListGroupsRequest) -> admin_pb2.ListGroupsResponse:
        broker = self._broker
        topics_of: dict[str, list[str]] = {}
        for group_name, topic in broker.delivery.subscriptions():
            topics_of.setdefault(group_name, []).append(topic)
        response = admin_pb2.ListGroupsResponse()
        for group in broker.groups:
            status = response.groups.add(broker_name=broker.options.name)
            status.group.CopyFrom(config_wire.group_config(group))
            status.client_ids.extend(client.client_id for client in broker.clients.of_group(group.name))
            for topic in sorted(topics_of.get(group.name, ())):
                status.positions.extend(self._positions(group.name, topic))
        return response

    async def reset_offset(self, request: admin_pb2.ResetOffsetRequest) -> admin_pb2.ResetOffsetResponse:
        broker = self._broker
        group, topic = broker.groups.get(request.group), broker.topics.get(request.topic)
        broker.subscribe(group.name, topic)
        for queue_id in range(topic.read_queues):
            offset = broker.store.offset_by_time(topic.name, queue_id, request.timestamp_ms)
            broker.delivery.reset(group.name, topic.name, queue_id, offset)
        broker.touched()
        return admin_pb2.ResetOffsetResponse(positions=self._positions(group.name, topic.name))

    def _positions(self, group: str, topic: str) -> list[admin_pb2.GroupPosition]:
        return [
            admin_pb2.GroupPosition(
                topic=topic,
                queue_id=position.queue_id,
                committed_offset=position.floor,
                next_offset=position.next_offset,
                outstanding=position.outstanding,
                max_offset=self._broker.store.queue_range(topic, position.queue_id)[1],
            )
            for position in self._broker.delivery.positions(group, topic)
        ]

    # --- messages

    async def find_messages(self, request: admin_pb2.FindMessagesRequest) -> admin_pb2.FindMessagesResponse:
        if bool(request.message_id) == bool(request.key):
            raise RequestRefused(Code.BAD_REQUEST, "either a message id or a key is needed")
        if request.topic:
            check_topic(request.topic)
        count = min(request.max_count or FIND_DEFAULT, FIND_MAX)
        begin_ms, end_ms = request.begin_ms, request.end_ms or ALL_TIME_MS
        if request.key:
            if not request.topic:
                raise RequestRefused(Code.BAD_REQUEST, "a key is looked for in a topic: name it")
            found = self._broker.store.query_by_key(request.topic, request.key, count, begin_ms, end_ms)
        else:
            found = self._by_id(request.message_id, request.topic, count, begin_ms, end_ms)
        response = admin_pb2.FindMessagesResponse()
        body_bytes = 0
        for message in found:
            body_bytes += len(message.body)
            if response.messages and body_bytes > FIND_BODY_BYTES_MAX:
                break
            response.messages.append(self._message(message))
        return response

    def _by_id(self, message_id: str, topic: str, count: int, begin_ms: int, end_ms: int) -> list[StoredMessage]:
        """By the producer's id through the key index, in one topic or in all of them; else by the place in the log that
        an offset id names."""
        store = self._broker.store
        names = [topic] if topic else [each.name for each in self._broker.topics if not is_system_topic(each.name)]
        found: list[StoredMessage] = []
        for name in names:
            candidates = store.query_by_key(name, message_id, count - len(found), begin_ms, end_ms)
            found += [message for message in candidates if message_id_of(message) == message_id]
            if len(found) >= count:
                return found
        if found:
            return found
        try:
            place = parse_offset_message_id(message_id)
        except ValueError:
            return []
        message = store.read_at(place[-1])
        if message is None or is_system_topic(message.topic) or topic not in ("", message.topic):
            return []
        return [message]

    def _message(self, message: StoredMessage) -> admin_pb2.StoredMessage:
        return admin_pb2.StoredMessage(
            broker_name=self._broker.options.name,
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            store_timestamp_ms=message.store_ms,
            born_timestamp_ms=message.born_ms,
            born_host=message.born_host,
            store_host=message.store_host,
            message_id=message_id_of(message),
            offset_message_id=message.offset_message_id,
            properties=message.properties,
            body=message.body,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
        )

    async def describe_brokers(self, _request: admin_pb2.DescribeBrokersRequest) -> admin_pb2.DescribeBrokersResponse:
        return admin_pb2.DescribeBrokersResponse(brokers=[self._describe()])


def _unary(
    request_type: type[Message], handler: Callable[[Any], Awaitable[Any]]
) -> Callable[[bytes, Call], Awaitable[bytes]]:
    async def handle(raw: bytes, call: Call) -> bytes:
        try:
            try:
                request = request_type.FromString(raw)
            except DecodeError as error:
                raise RequestRefused(Code.BAD_REQUEST, f"not a {request_type.DESCRIPTOR.name}") from error
            answer = await handler(request)
        except Exception as error:
            refused = _refusal(error, request_id_of(call))
            raise RpcError(GrpcStatus(refused.number), refused.message) from error
        return bytes(answer.SerializeToString())

    return handle


def _refusal(error: Exception, request_id: str) -> CallRefused:
    if isinstance(error, TopicExists | GroupExists):
        return CallRefused(grpc.StatusCode.ALREADY_EXISTS, error.message)
    if isinstance(error, BrokerFault):  # a nameserver or the disk is behind: ask again
        return CallRefused(grpc.StatusCode.UNAVAILABLE, error.message)
    return refusal_of(error, request_id)


assert FIND_MAX >= FIND_DEFAULT
assert FIND_BODY_BYTES_MAX + limits.MESSAGE_BODY_BYTES_MAX < limits.REQUEST_BYTES_MAX
