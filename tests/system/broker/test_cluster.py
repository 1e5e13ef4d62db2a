"""The broker among others: registration with real nameservers, and calls for other brokers."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from broker.in_process import Code, MessageType, TopicType, eventually, pb, resource, running

from razzo.door.methods import MethodTable
from razzo.protocol import methods
from razzo.runtime.peer_server import PeerServer
from razzo.v1 import admin_pb2, registry_pb2

T, G = "orders", "billing"


class Nameserver:
    """A registry that the test holds in its hand: it keeps what came and acknowledges when told to."""

    def __init__(self):
        self.beats = []
        self.brokers = {}
        self.acknowledge = True
        self._held = []
        self._streams = set()
        table = MethodTable()
        table.bidi(methods.REGISTER, self._register)
        self._server = PeerServer(table)

    async def start(self, port=0):
        self.port = await self._server.start("127.0.0.1", port)
        return self

    async def stop(self):
        await self._server.stop(0)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    async def _register(self, call):
        self._streams.add(call)
        name = None
        try:
            async for raw in call:
                beat = registry_pb2.BrokerBeat.FromString(raw)
                self.beats.append(beat)
                if beat.HasField("broker"):
                    name = beat.broker.broker_name
                    self.brokers[name] = beat.broker
                if beat.leaving:
                    self.brokers.pop(name, None)
                if self.acknowledge:
                    await self._answer(call, beat.sequence)
                else:
                    self._held.append((call, beat.sequence))
                await self._spread(but=call)
        finally:
            self._streams.discard(call)
            self.brokers.pop(name, None)

    async def release(self):
        held, self._held = self._held, []
        for call, sequence in held:
            await self._answer(call, sequence)

    async def _answer(self, call, sequence):
        message = registry_pb2.RegistryMessage(acked_sequence=sequence, view=self._view())
        await call.write(message.SerializeToString())

    async def _spread(self, but):
        for call in self._streams - {but}:
            await call.write(registry_pb2.RegistryMessage(view=self._view()).SerializeToString())

    def _view(self):
        return registry_pb2.ClusterView(brokers=[self.brokers[name] for name in sorted(self.brokers)])


@asynccontextmanager
async def nameserver(port=0):
    started = await Nameserver().start(port)
    try:
        yield started
    finally:
        await started.stop()


async def registered(server, *names):
    async def known():
        return set(names) <= set(server.brokers)

    await eventually(known)


async def test_the_first_beat_tells_all(tmp_path):
    async with nameserver() as server, running(tmp_path / "data", nameservers=(server.address,)) as broker:
        await registered(server, "broker-a")
        info = server.brokers["broker-a"]
        assert (info.cluster, info.broker_id) == ("DefaultCluster", 0)
        assert info.incarnation
        assert f"{info.client_plain.host}:{info.client_plain.port}" == broker.address()
        assert f"{info.peer.host}:{info.peer.port}" == broker.address("peer")
        assert not info.HasField("client_tls")


async def test_a_topic_is_known_when_its_creation_is_answered(tmp_path):
    async with (
        nameserver() as one,
        nameserver() as two,
        running(tmp_path / "data", nameservers=(one.address, two.address)) as broker,
    ):
        await registered(one, "broker-a")
        await registered(two, "broker-a")
        for n in range(5):
            await broker.admin().topic(f"topic-{n}")
            for server in (one, two):
                assert f"topic-{n}" in {topic.name for topic in server.brokers["broker-a"].topics}
        versions = [beat.broker.data_version for beat in one.beats if beat.HasField("broker")]
        assert versions == sorted(set(versions))


async def test_creation_waits_for_a_slow_nameserver(tmp_path):
    async with nameserver() as server, running(tmp_path / "data", nameservers=(server.address,)) as broker:
        await registered(server, "broker-a")
        server.acknowledge = False
        creating = asyncio.create_task(broker.admin().topic(T))
        assert not (await asyncio.wait([creating], timeout=0.3))[0]
        await server.release()
        assert (await creating).name == T


async def test_creation_does_not_wait_for_ever(tmp_path):
    async with (
        nameserver() as server,
        running(tmp_path / "data", nameservers=(server.address,), register_timeout_s=0.2) as broker,
    ):
        await registered(server, "broker-a")
        server.acknowledge = False
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await broker.admin().topic(T)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        # it is in effect all the same
        await broker.client().send_ok(T)


async def test_creation_does_not_wait_for_a_nameserver_that_is_away(tmp_path):
    async with running(tmp_path / "data", nameservers=("127.0.0.1:1",)) as broker:
        begun = time.monotonic()
        await broker.admin().topic(T)
        assert time.monotonic() - begun < 2


async def test_a_nameserver_that_comes_back_is_told_again(tmp_path):
    async with nameserver() as server:
        port = server.port
        context = running(tmp_path / "data", nameservers=(server.address,))
        broker = await context.__aenter__()
        await registered(server, "broker-a")
    try:
        await broker.admin().topic(T)
        async with nameserver(port) as again:
            await registered(again, "broker-a")
            assert T in {topic.name for topic in again.brokers["broker-a"].topics}
    finally:
        await context.__aexit__(None, None, None)


async def test_beats_go_on_when_nothing_changes(tmp_path):
    async with (
        nameserver() as server,
        running(tmp_path / "data", nameservers=(server.address,), beat_interval_s=0.1),
    ):

        async def several():
            return len(server.beats) >= 4

        await eventually(several)
        assert [beat.HasField("broker") for beat in server.beats[:4]] == [True, False, False, False]
        assert [beat.sequence for beat in server.beats[:4]] == [1, 2, 3, 4]


async def test_a_stop_is_announced(tmp_path):
    async with nameserver() as server:
        async with running(tmp_path / "data", nameservers=(server.address,)):
            await registered(server, "broker-a")
        assert server.beats[-1].leaving
        assert server.brokers == {}


# --- two brokers


@pytest.fixture
async def two(tmp_path):
    async with (
        nameserver() as server,
        running(tmp_path / "a", broker_name="broker-a", nameservers=(server.address,)) as first,
        running(tmp_path / "b", broker_name="broker-b", nameservers=(server.address,)) as second,
    ):
        await registered(server, "broker-a", "broker-b")
        for broker in (first, second):
            await broker.admin().topic(T, queues=2)
        for broker in (first, second):
            await eventually(lambda broker=broker: _knows_both(broker))
        yield first, second


async def _knows_both(broker):
    answer = await broker.client().call(methods.QUERY_ROUTE, pb.QueryRouteRequest(topic=resource(T)))
    return {queue.broker.name for queue in answer.message_queues} == {"broker-a", "broker-b"}


async def test_both_brokers_answer_the_same(two):
    answers = [
        (
            await broker.client().call(methods.QUERY_ROUTE, pb.QueryRouteRequest(topic=resource(T))),
            await broker.client().subscribe(T, G),
        )
        for broker in two
    ]
    assert answers[0][0].SerializeToString() == answers[1][0].SerializeToString()
    assert answers[0][1].SerializeToString() == answers[1][1].SerializeToString()
    assert len(answers[0][1].assignments) == 2


async def test_calls_for_the_other_broker_are_forwarded(two):
    first, second = two
    near, far = first.client("one-client"), second.client("one-client")
    await far.subscribe(T, G)
    await far.send(*(far.message(T, b"%d" % n, message_id=f"id-{n}") for n in range(4)))
    messages = await near.take(T, G, broker="broker-b")
    assert len(messages) == 4
    await near.ack_ok(T, G, messages[0])
    await near.nack(T, G, messages[1])
    (again,) = await near.take(T, G, broker="broker-b")
    assert again.body == messages[1].body
    assert (await near.ack(T, G, messages[1])).status.code == Code.INVALID_RECEIPT_HANDLE
    forward = pb.ForwardMessageToDeadLetterQueueRequest(
        group=resource(G), topic=resource(T), receipt_handle=messages[2].system_properties.receipt_handle
    )
    answer = await near.call(methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, forward)
    assert answer.status.code == Code.OK
    request = admin_pb2.FindMessagesRequest(topic=f"%DLQ%{G}", message_id="id-2")
    assert len((await second.admin().call(methods.FIND_MESSAGES, request)).messages) == 1
    outstanding = sum(position.outstanding for position in await second.admin().positions(G, T))
    assert outstanding == 2


async def test_an_ack_for_several_brokers(two):
    first, second = two
    client = first.client("one-client")
    messages = []
    for broker, name in ((first, "broker-a"), (second, "broker-b")):
        other = broker.client("one-client")
        await other.subscribe(T, G)
        await other.send_ok(T, name.encode())
        messages += await other.take(T, G, broker=name)
    stale = await client.ack(T, G, messages[1], messages[0], messages[1])
    assert stale.status.code == Code.OK
    assert [entry.receipt_handle for entry in stale.entries] == [
        each.system_properties.receipt_handle for each in (messages[1], messages[0], messages[1])
    ]
    for broker in two:
        assert sum(each.outstanding for each in await broker.admin().positions(G, T)) == 0


async def test_an_unknown_broker_is_nobody(two):
    """A name that is no broker's is taken as ours: the client's route is older than the cluster."""
    client = two[0].client()
    await client.subscribe(T, G)
    status, _, _ = await client.receive(T, G, broker="broker-z")
    assert status.code == Code.MESSAGE_NOT_FOUND


async def test_fifo_groups_hash_alike_on_both(two):
    queues = []
    for broker in two:
        client = broker.client()
        await broker.admin().topic("ordered", kind=TopicType.FIFO, queues=8)
        await client.subscribe("ordered", G)
        name = broker.ready["name"]
        await client.send_ok("ordered", message_group="g-1", message_type=MessageType.FIFO)
        (message,) = await client.take("ordered", G, broker=name)
        queues.append(message.system_properties.queue_id)
    assert queues[0] == queues[1]
