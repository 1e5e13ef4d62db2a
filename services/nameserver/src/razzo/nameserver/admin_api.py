"""razzo.v1.ClusterAdmin for the whole cluster: every broker concerned is asked, and the answer comes when all have done
it. When some did and some did not, the call fails and says who is where; asking again is always allowed.

Which brokers: a new topic or group goes to all masters. One that exists is changed where it is and made where it is
missing, so an update also mends a broker that was down when the topic was made.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from razzo.door.methods import Call, MethodTable
from razzo.nameserver.broker_calls import Asked, BrokerCalls
from razzo.nameserver.calls import decoded, unary_with_grpc_status
from razzo.nameserver.cluster import Cluster
from razzo.protocol import methods
from razzo.runtime.forwarding import Metadata, carried_metadata
from razzo.runtime.status import CallRefused, refusal_of
from razzo.v1 import admin_pb2, registry_pb2

log = logging.getLogger(__name__)

ADMIN_S_MAX = 30.0
"""For all brokers to do what an operator asks, when the operator sets no deadline."""

M = TypeVar("M", bound=Message)
Status = grpc.StatusCode


class AdminApi:
    """Used on one event loop."""

    def __init__(self, cluster: Cluster, brokers: BrokerCalls) -> None:
        self._cluster = cluster
        self._brokers = brokers

    def mount(self, table: MethodTable) -> None:
        handlers = (
            (methods.PUT_TOPIC, self.put_topic),
            (methods.DELETE_TOPIC, self.delete_topic),
            (methods.LIST_TOPICS, self.list_topics),
            (methods.PUT_GROUP, self.put_group),
            (methods.DELETE_GROUP, self.delete_group),
            (methods.LIST_GROUPS, self.list_groups),
            (methods.RESET_OFFSET, self.reset_offset),
            (methods.FIND_MESSAGES, self.find_messages),
            (methods.DESCRIBE_BROKERS, self.describe_brokers),
        )
        for path, handler in handlers:
            table.unary(path, unary_with_grpc_status(handler))

    # --- topics and groups

    async def put_topic(self, request: bytes, call: Call) -> bytes:
        put = decoded(admin_pb2.PutTopicRequest, request)
        name = put.topic.name
        having = {serving.broker.broker_name for serving in self._cluster.book.serving(name)}
        if having and not put.update:
            raise CallRefused(Status.ALREADY_EXISTS, f"there is a topic {name!r} already")
        make = admin_pb2.PutTopicRequest(topic=put.topic, update=put.update and not having)
        return await self._put(having, request, make.SerializeToString(), call)

    async def put_group(self, request: bytes, call: Call) -> bytes:
        put = decoded(admin_pb2.PutGroupRequest, request)
        name = put.group.name
        having = self._having_group(name)
        if having and not put.update:
            raise CallRefused(Status.ALREADY_EXISTS, f"there is a consumer group {name!r} already")
        make = admin_pb2.PutGroupRequest(group=put.group, update=put.update and not having)
        return await self._put(having, request, make.SerializeToString(), call)

    async def delete_topic(self, request: bytes, call: Call) -> bytes:
        name = decoded(admin_pb2.DeleteTopicRequest, request).name
        brokers = [serving.broker for serving in self._cluster.book.serving(name)]
        if not brokers:
            self._masters()
            raise CallRefused(Status.NOT_FOUND, f"there is no topic {name!r}")
        return _all_or_error(await self._ask(brokers, request, call), gone_is_done=True)

    async def delete_group(self, request: bytes, call: Call) -> bytes:
        name = decoded(admin_pb2.DeleteGroupRequest, request).name
        having = self._having_group(name)
        brokers = [broker for broker in self._masters() if broker.broker_name in having]
        if not brokers:
            raise CallRefused(Status.NOT_FOUND, f"there is no consumer group {name!r}")
        return _all_or_error(await self._ask(brokers, request, call), gone_is_done=True)

    # --- figures

    async def list_topics(self, request: bytes, call: Call) -> bytes:
        answer = admin_pb2.ListTopicsResponse()
        for part in await self._gather(admin_pb2.ListTopicsResponse, self._masters(), request, call):
            answer.topics.extend(part.topics)
        return answer.SerializeToString()

    async def list_groups(self, request: bytes, call: Call) -> bytes:
        answer = admin_pb2.ListGroupsResponse()
        for part in await self._gather(admin_pb2.ListGroupsResponse, self._masters(), request, call):
            answer.groups.extend(part.groups)
        return answer.SerializeToString()

    async def find_messages(self, request: bytes, call: Call) -> bytes:
        """What all brokers found, in the order of broker names, cut at `max_count` when it is set."""
        find = decoded(admin_pb2.FindMessagesRequest, request)
        answer = admin_pb2.FindMessagesResponse()
        for part in await self._gather(admin_pb2.FindMessagesResponse, self._masters(), request, call):
            answer.messages.extend(part.messages)
        if find.max_count:
            del answer.messages[find.max_count :]
        return answer.SerializeToString()

    async def reset_offset(self, request: bytes, call: Call) -> bytes:
        """On every broker of the topic; one that does not know the group yet has nothing to move."""
        reset = decoded(admin_pb2.ResetOffsetRequest, request)
        brokers = [serving.broker for serving in self._cluster.book.serving(reset.topic)]
        if not brokers:
            self._masters()
            raise CallRefused(Status.NOT_FOUND, f"there is no topic {reset.topic!r}")
        answer = admin_pb2.ResetOffsetResponse()
        parts = await self._gather(admin_pb2.ResetOffsetResponse, brokers, request, call, may_be_absent=True)
        for part in parts:
            answer.positions.extend(part.positions)
        return answer.SerializeToString()

    async def describe_brokers(self, request: bytes, call: Call) -> bytes:
        """As registered here, leaving ones included."""
        decoded(admin_pb2.DescribeBrokersRequest, request)
        return admin_pb2.DescribeBrokersResponse(brokers=self._cluster.connected()).SerializeToString()

    # --- asking

    def _masters(self) -> Sequence[registry_pb2.BrokerInfo]:
        masters = self._cluster.book.masters()
        if not masters:
            raise CallRefused(Status.UNAVAILABLE, "no broker is registered with this nameserver")
        return masters

    def _having_group(self, name: str) -> set[str]:
        return {
            broker.broker_name
            for broker in self._cluster.book.masters()
            if any(group.name == name for group in broker.groups)
        }

    async def _put(self, having: set[str], change: bytes, make: bytes, call: Call) -> bytes:
        """Changes it on the brokers that have it and makes it on the others; the answer of the first broker."""
        masters = self._masters()
        changed = await self._ask([broker for broker in masters if broker.broker_name in having], change, call)
        made = await self._ask([broker for broker in masters if broker.broker_name not in having], make, call)
        by_name = {result.broker.broker_name: result for result in (*changed, *made)}
        return _all_or_error([by_name[broker.broker_name] for broker in masters])

    async def _gather(
        self,
        kind: type[M],
        brokers: Sequence[registry_pb2.BrokerInfo],
        request: bytes,
        call: Call,
        may_be_absent: bool = False,
    ) -> list[M]:
        """Every broker's answer. `may_be_absent`: brokers that answer NOT_FOUND are left out unless all do."""
        results = await self._ask(brokers, request, call)
        found = [result for result in results if not (may_be_absent and _is_absent(result))]
        _all_or_error(found or results)
        return [kind.FromString(result.answer) for result in found if result.answer is not None]

    async def _ask(self, brokers: Sequence[registry_pb2.BrokerInfo], request: bytes, call: Call) -> list[Asked]:
        remaining = call.time_remaining()
        timeout_s = ADMIN_S_MAX if remaining is None else min(ADMIN_S_MAX, remaining)
        metadata: Metadata = carried_metadata(call)
        return await self._brokers.ask_all(brokers, call.path, request, metadata, timeout_s)


def _is_absent(result: Asked) -> bool:
    return result.error is not None and refusal_of(result.error).status is Status.NOT_FOUND


def _all_or_error(results: Sequence[Asked], gone_is_done: bool = False) -> bytes:
    """The first answer when every broker did it, else CallRefused. `gone_is_done`: NOT_FOUND counts as done unless all
    brokers say so."""
    failed = [result for result in results if result.error is not None]
    if gone_is_done and any(result.error is None for result in results):
        failed = [result for result in failed if not _is_absent(result)]
    done = [result for result in results if result.answer is not None]
    if not failed and done:
        assert done[0].answer is not None
        return done[0].answer
    refusals = [refusal_of(result.error) for result in failed if result.error is not None]
    statuses = {refusal.status for refusal in refusals}
    first = refusals[0]
    if len(failed) == len(results) and len({refusal.message for refusal in refusals}) == 1:
        raise first
    texts = [
        f"{result.broker.broker_name}: {refusal.status.name} {refusal.message}"
        for result, refusal in zip(failed, refusals, strict=True)
    ]
    names = ", ".join(result.broker.broker_name for result in done)
    summary = f"done on {names}; " if done else ""
    status = Status.UNAVAILABLE if Status.UNAVAILABLE in statuses else first.status
    raise CallRefused(status, f"{summary}not on {'; '.join(texts)}")
