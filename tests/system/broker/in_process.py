"""A whole broker in this process: the real composition, the real store in tmp_path, the grpcio door on a free port."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker.main import compose
from razzo.broker.settings import BrokerSettings, DoorKind, FlushChoice
from razzo.protocol import methods
from razzo.runtime.lifecycle import Lifecycle
from razzo.v1 import admin_pb2, config_pb2

pb = service_pb2
Code = definition_pb2.Code
MessageType = definition_pb2.MessageType
TopicType = config_pb2.TopicType

SMALL = {
    "client_port": 0,
    "peer_port": 0,
    "client_tls": False,
    "door": DoorKind.GRPCIO,
    "broker_name": "broker-a",
    "commit_log_file_bytes": 16 << 20,
    "consume_queue_file_units": 1_000,
    "index_slots": 1_000,
    "index_units": 4_000,
    "flush_mode": FlushChoice.ASYNC,
    "flush_interval_ms": 50,
    "stop_grace_s": 0.2,
}

UNARY = {
    methods.QUERY_ROUTE: pb.QueryRouteResponse,
    methods.HEARTBEAT: pb.HeartbeatResponse,
    methods.SEND_MESSAGE: pb.SendMessageResponse,
    methods.QUERY_ASSIGNMENT: pb.QueryAssignmentResponse,
    methods.ACK_MESSAGE: pb.AckMessageResponse,
    methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE: pb.ForwardMessageToDeadLetterQueueResponse,
    methods.UPDATE_OFFSET: pb.UpdateOffsetResponse,
    methods.GET_OFFSET: pb.GetOffsetResponse,
    methods.QUERY_OFFSET: pb.QueryOffsetResponse,
    methods.END_TRANSACTION: pb.EndTransactionResponse,
    methods.NOTIFY_CLIENT_TERMINATION: pb.NotifyClientTerminationResponse,
    methods.CHANGE_INVISIBLE_DURATION: pb.ChangeInvisibleDurationResponse,
    methods.RECALL_MESSAGE: pb.RecallMessageResponse,
    methods.SYNC_LITE_SUBSCRIPTION: pb.SyncLiteSubscriptionResponse,
    methods.PUT_TOPIC: admin_pb2.PutTopicResponse,
    methods.DELETE_TOPIC: admin_pb2.DeleteTopicResponse,
    methods.LIST_TOPICS: admin_pb2.ListTopicsResponse,
    methods.PUT_GROUP: admin_pb2.PutGroupResponse,
    methods.DELETE_GROUP: admin_pb2.DeleteGroupResponse,
    methods.LIST_GROUPS: admin_pb2.ListGroupsResponse,
    methods.RESET_OFFSET: admin_pb2.ResetOffsetResponse,
    methods.FIND_MESSAGES: admin_pb2.FindMessagesResponse,
    methods.DESCRIBE_BROKERS: admin_pb2.DescribeBrokersResponse,
}


def resource(name, namespace=""):
    return definition_pb2.Resource(name=name, resource_namespace=namespace)


class Client:
    """One client of one broker: raw gRPC, so that a test sees exactly what is on the wire."""

    _numbers = itertools.count(1)

    def __init__(self, channel, client_id=None):
        self.channel = channel
        self.client_id = client_id or f"test@{next(self._numbers)}"

    def metadata(self, extra=()):
        return (("x-mq-client-id", self.client_id), ("x-mq-language", "PYTHON"), *extra)

    async def call(self, path, request, *, metadata=None, timeout=5.0):
        invoke = self.channel.unary_unary(path)
        raw = await invoke(
            request.SerializeToString(),
            metadata=self.metadata() if metadata is None else metadata,
            timeout=timeout,
        )
        return UNARY[path].FromString(raw)

    # --- sending

    def message(self, topic, body=b"x", *, message_id=None, message_type=MessageType.NORMAL, properties=(), **system):
        message = definition_pb2.Message(topic=resource(topic), body=body, user_properties=dict(properties))
        kept = message.system_properties
        kept.message_id = message_id or f"01{next(self._numbers):032X}"
        kept.message_type = message_type
        kept.born_timestamp.FromMilliseconds(int(time.time() * 1000))
        kept.body_encoding = definition_pb2.Encoding.IDENTITY
        for name, value in system.items():
            if name == "keys":
                kept.keys.extend(value)
            else:
                setattr(kept, name, value)
        return message

    async def send(self, *messages, **options):
        return await self.call(methods.SEND_MESSAGE, pb.SendMessageRequest(messages=messages), **options)

    async def send_ok(self, topic, body=b"x", **options):
        """One message; its result entry."""
        answer = await self.send(self.message(topic, body, **options))
        assert answer.status.code == Code.OK, answer.status
        assert [entry.status.code for entry in answer.entries] == [Code.OK]
        return answer.entries[0]

    # --- receiving

    async def receive(self, topic, group, *, batch=32, invisible_s=10, poll_s=0.0, expression="*", **fields):
        """(status, messages, delivery timestamp in ms) of one receive. Without `poll_s` it asks for the shortest poll
        that a deadline allows."""
        request = pb.ReceiveMessageRequest(group=resource(group), batch_size=batch)
        request.message_queue.topic.CopyFrom(resource(topic))
        request.message_queue.broker.name = fields.pop("broker", "broker-a")
        request.message_queue.id = fields.pop("queue_id", -1)
        request.filter_expression.expression = expression
        request.filter_expression.type = fields.pop("filter_type", definition_pb2.FilterType.TAG)
        if invisible_s is not None:
            request.invisible_duration.FromMilliseconds(int(invisible_s * 1000))
        for name, value in fields.items():
            setattr(request, name, value)
        request.long_polling_timeout.FromMilliseconds(int(poll_s * 1000))
        return await self.receive_request(request, timeout=max(poll_s, 0.0) + 0.6)

    async def receive_request(self, request, timeout=None):
        stream = self.channel.unary_stream(methods.RECEIVE_MESSAGE)
        status, messages, delivered_ms = None, [], None
        async for raw in stream(request.SerializeToString(), metadata=self.metadata(), timeout=timeout):
            answer = pb.ReceiveMessageResponse.FromString(raw)
            match answer.WhichOneof("content"):
                case "status":
                    assert status is None, "one status, and first"
                    assert not messages
                    status = answer.status
                case "message":
                    messages.append(answer.message)
                case "delivery_timestamp":
                    delivered_ms = answer.delivery_timestamp.ToMilliseconds()
        return status, messages, delivered_ms

    async def take(self, topic, group, **options):
        """The messages of one receive, which must not be refused."""
        status, messages, _ = await self.receive(topic, group, **options)
        assert status.code == (Code.OK if messages else Code.MESSAGE_NOT_FOUND), status
        return messages

    async def subscribe(self, topic, group):
        """First sight of a group on a topic."""
        answer = await self.call(
            methods.QUERY_ASSIGNMENT, pb.QueryAssignmentRequest(topic=resource(topic), group=resource(group))
        )
        assert answer.status.code == Code.OK, answer.status
        return answer

    async def ack(self, topic, group, *messages):
        request = pb.AckMessageRequest(group=resource(group), topic=resource(topic))
        for message in messages:
            kept = message.system_properties
            request.entries.add(message_id=kept.message_id, receipt_handle=kept.receipt_handle)
        return await self.call(methods.ACK_MESSAGE, request)

    async def ack_ok(self, topic, group, *messages):
        answer = await self.ack(topic, group, *messages)
        assert answer.status.code == Code.OK, answer.status
        assert len(answer.entries) == len(messages)

    async def change_invisible(self, topic, group, handle, duration_s):
        request = pb.ChangeInvisibleDurationRequest(group=resource(group), topic=resource(topic), receipt_handle=handle)
        request.invisible_duration.FromMilliseconds(int(duration_s * 1000))
        return await self.call(methods.CHANGE_INVISIBLE_DURATION, request)

    async def nack(self, topic, group, message, duration_s=0.0):
        handle = message.system_properties.receipt_handle
        answer = await self.change_invisible(topic, group, handle, duration_s)
        assert answer.status.code == Code.OK, answer.status


class Admin:
    """ClusterAdmin on the broker's peer port."""

    def __init__(self, channel):
        self.client = Client(channel)

    async def call(self, path, request):
        return await self.client.call(path, request, metadata=())

    async def topic(self, name, *, queues=1, kind=TopicType.NORMAL, update=False, permission=6, attributes=None):
        config = config_pb2.TopicConfig(
            name=name, read_queues=queues, write_queues=queues, permission=permission, type=kind, attributes=attributes
        )
        return (await self.call(methods.PUT_TOPIC, admin_pb2.PutTopicRequest(topic=config, update=update))).topic

    async def group(self, name, *, update=False, **fields):
        fields = {"retry_max_times": 16, "consume_enabled": True, **fields}
        config = config_pb2.GroupConfig(name=name, **fields)
        return (await self.call(methods.PUT_GROUP, admin_pb2.PutGroupRequest(group=config, update=update))).group

    async def positions(self, group, topic):
        groups = (await self.call(methods.LIST_GROUPS, admin_pb2.ListGroupsRequest())).groups
        return [
            position
            for status in groups
            if status.group.name == group
            for position in status.positions
            if position.topic == topic
        ]


class RunningBroker:
    """A broker between start and stop."""

    def __init__(self, data: Path, **settings):
        self.settings = BrokerSettings(data=data, **{**SMALL, **settings})
        self.life = Lifecycle()
        self.ready = {}
        self._channels = []

    async def start(self):
        self.ready = await compose(self.settings, self.life)
        return self

    async def stop(self):
        for channel in self._channels:
            await channel.close()
        assert await self.life.stop_all(), "a part did not stop cleanly"

    def address(self, port="client"):
        return f"127.0.0.1:{self.ready[port]['port']}"

    def channel(self, port="client"):
        channel = grpc.aio.insecure_channel(
            self.address(port), options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        )
        self._channels.append(channel)
        return channel

    def client(self, client_id=None):
        return Client(self.channel(), client_id)

    def admin(self):
        return Admin(self.channel("peer"))


@asynccontextmanager
async def running(data, **settings):
    broker = RunningBroker(data, **settings)
    try:
        yield await broker.start()
    finally:
        await broker.stop()


def crash_copy(data: Path, target: Path) -> Path:
    """The directory as a power cut would leave it now: the copy was never closed."""

    def copy(source, destination):
        with suppress(FileNotFoundError):  # renamed by a thread while we look, as in a real cut
            shutil.copy2(source, destination)

    shutil.copytree(data, target, copy_function=copy)
    assert (target / "abort").exists()
    return target


async def eventually(condition, timeout_s=5.0):
    """The first truthy value of an async condition."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        await asyncio.sleep(0.02)
