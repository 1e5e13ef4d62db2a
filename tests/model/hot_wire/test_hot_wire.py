"""The kernel's way from request bytes to records and from records to answers, against the slow way through protobuf.

The slow way (`razzo.broker.incoming`, `outgoing`) is the oracle: whatever the kernel takes, the slow way takes too, and
both store and answer the same; whatever the slow way refuses, the kernel leaves alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker import incoming
from razzo.broker.handles import ReceiptHandles, context_of
from razzo.broker.outgoing import Batch, Delivered, ReceiveFrames
from razzo.broker.topics import Topic
from razzo.protocol.errors import RequestRefused
from razzo.protocol.limits import MESSAGE_BODY_BYTES_MAX
from razzo.storage import FlushMode, Store, StoredMessage, StoreSettings, siphash24

TOPIC = Topic("orders", 4, 4)
NOW_MS = 1_763_700_000_123
PEER = "ipv4:10.1.2.3:40000"
SEEDS = range(8)
REQUESTS = 250
BATCH_MAX = 40

TEXTS = ("a", "order-1001", "größe", "键", "🦊 fox", "a b", "é" * 70, "x" * 300, " ", "", "\t", "a|b", "\x7f", "\x85")
NAMES = ("tenant", "größe", "x" * 40, "TAGS", "WAIT", "UNIQ_KEY", "__RMQ.TRANSIENT.x", "__mine", "", " ", "a\x01b")


class Requests:
    """Random SendMessage requests: mostly plain, often odd in one place, sometimes no requests at all."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __iter__(self) -> Iterator[bytes]:
        for number in range(REQUESTS):
            yield self._one(number)

    def _text(self) -> str:
        return self.random.choice(TEXTS) if self.random.random() < 0.2 else f"t{self.random.randrange(1000)}"

    def _one(self, number: int) -> bytes:
        draw = self.random
        request = service_pb2.SendMessageRequest()
        for _ in range(draw.choice((1,) * 30 + (0, 2))):
            self._fill(request.messages.add(), number)
        encoded = request.SerializeToString()
        odd = draw.random()
        if odd < 0.05:
            encoded = encoded[: draw.randrange(len(encoded) + 1)]
        elif odd < 0.1:
            cut = draw.randrange(len(encoded) + 1)
            encoded = encoded[:cut] + draw.randbytes(draw.randrange(1, 9)) + encoded[cut:]
        elif odd < 0.15 and encoded:
            at = draw.randrange(len(encoded))
            encoded = encoded[:at] + bytes([encoded[at] ^ 1 << draw.randrange(8)]) + encoded[at + 1 :]
        return encoded

    def _fill(self, message: definition_pb2.Message, number: int) -> None:
        draw = self.random
        system = message.system_properties
        message.topic.name = "orders" if draw.random() < 0.95 else self._text()
        if draw.random() < 0.03:
            message.topic.resource_namespace = "space"
        message.body = draw.randbytes(draw.choice((0, 1, 10, 100, 1_000, 5_000)) if draw.random() < 0.3 else 64)
        system.message_id = self._text() if draw.random() < 0.1 else f"0102FC000000014FD10B11B561{number:08X}"
        system.message_type = definition_pb2.NORMAL if draw.random() < 0.9 else draw.randrange(8)
        if draw.random() < 0.8:
            system.body_encoding = definition_pb2.IDENTITY if draw.random() < 0.9 else draw.randrange(4)
        if draw.random() < 0.5:
            system.tag = self._text()
        for _ in range(draw.choice((0, 0, 1, 2, 5))):
            system.keys.append(self._text())
        if draw.random() < 0.7:
            system.born_timestamp.FromMilliseconds(NOW_MS + draw.randrange(-(10**6), 10**6))
        if draw.random() < 0.5:
            system.born_host = self._text()
        if draw.random() < 0.3:
            system.queue_id = draw.randrange(-1, 9)
        if draw.random() < 0.2:
            system.trace_context = self._text()
        for _ in range(draw.choice((0, 1, 2, 3, 20))):
            name = draw.choice(NAMES) if draw.random() < 0.15 else f"p{draw.randrange(50)}"
            message.user_properties[name] = self._text()
        rare = draw.random()
        if rare < 0.02:
            system.message_group = self._text()
        elif rare < 0.04:
            system.delivery_timestamp.FromMilliseconds(NOW_MS + draw.randrange(-5000, 5000))
        elif rare < 0.06:
            system.priority = draw.randrange(5)
        elif rare < 0.08:
            system.lite_topic = self._text()
        elif rare < 0.1:
            system.delivery_attempt = 7


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = StoreSettings(
        commit_log_file_bytes=1 << 16,
        consume_queue_file_units=100,
        index_slots=50,
        index_units=200,
        flush_mode=FlushMode.ASYNC,
    )
    opened = Store(tmp_path, settings, clock_ms=lambda: NOW_MS)
    opened.open()
    opened.offer_topic(TOPIC.name, TOPIC.write_queues)
    yield opened
    opened.close()


def slow(raw: bytes) -> tuple[definition_pb2.Message, dict[str, str]] | None:
    """The message and its stored properties, or None where the slow way refuses, or would not do with one record."""
    try:
        request = service_pb2.SendMessageRequest.FromString(raw)
    except Exception:
        return None
    if len(request.messages) != 1 or request.messages[0].topic.name != TOPIC.name:
        return None
    message = request.messages[0]
    try:
        incoming.check(message, TOPIC, NOW_MS)
    except RequestRefused:
        return None
    record = incoming.to_record(message, TOPIC, 0, PEER, NOW_MS)
    return message, incoming.properties.decode_properties(record.properties)


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_become_the_records_the_slow_way_makes(store: Store, seed: int) -> None:
    requests = list(Requests(seed))
    host = incoming.packed_host(PEER)
    draw = random.Random(seed)
    taken = plain = 0
    while requests:
        batch, requests = requests[: (size := draw.randrange(1, BATCH_MAX))], requests[size:]
        before = [store.queue_range(TOPIC.name, queue)[1] for queue in range(TOPIC.write_queues)]
        answers, end, topics = store.append_requests(batch, [host] * len(batch))
        assert (end != 0) == bool(topics) == any(answer is not None for answer in answers)
        found: dict[str, list[StoredMessage]] = {}
        for queue, offset in enumerate(before):
            for stored in store.read(TOPIC.name, queue, offset, BATCH_MAX).messages:
                found.setdefault(stored.properties["UNIQ_KEY"], []).append(stored)
        for raw, answer in zip(batch, answers, strict=True):
            expected = slow(raw)
            plain += expected is not None
            if answer is None:
                continue
            taken += 1
            assert expected is not None, f"the kernel took what the slow way refuses: {raw!r}"
            message, properties = expected
            response = service_pb2.SendMessageResponse.FromString(answer)
            assert response.SerializeToString(deterministic=True) == answer
            stored = found[message.system_properties.message_id].pop(0)
            assert stored.properties == properties
            assert stored.body == message.body
            system = message.system_properties
            born_ms = system.born_timestamp.ToMilliseconds() if system.HasField("born_timestamp") else NOW_MS
            assert stored.born_ms == born_ms
            assert (stored.born_host, stored.sys_flag, stored.flag, stored.store_ms) == ("10.1.2.3:40000", 0, 0, NOW_MS)
            assert [(entry.message_id, entry.offset) for entry in response.entries] == [
                (message.system_properties.message_id, stored.queue_offset)
            ]
            assert response.status == response.entries[0].status
            assert (response.status.code, response.status.message) == (definition_pb2.OK, "OK")
        assert not any(found.values()), "something was stored that nobody was told of"
    assert taken > plain / 2, "the kernel leaves too much to the slow way for this test to mean anything"


@pytest.mark.parametrize("seed", SEEDS)
def test_records_become_the_answers_the_slow_way_makes(store: Store, seed: int) -> None:
    host = incoming.packed_host(PEER)
    records = []
    for number, raw in enumerate(Requests(1_000 + seed)):
        if slow(raw) is not None:
            message = service_pb2.SendMessageRequest.FromString(raw).messages[0]
            records.append(incoming.to_record(message, TOPIC, number % 4, PEER, NOW_MS))
    for start in range(0, len(records), BATCH_MAX):
        store.append(records[start : start + BATCH_MAX])
    assert host == records[0].born_host

    frames = ReceiveFrames(ReceiptHandles("broker-a", bytes(range(16)), siphash24))
    context = context_of("group", TOPIC.name)
    draw = random.Random(seed)
    resource = definition_pb2.Resource(name=TOPIC.name, resource_namespace="" if seed % 2 else "space")
    hot = 0
    for queue in range(4):
        offset = 0
        while messages := store.read(TOPIC.name, queue, offset, 32).messages:
            offset = messages[-1].queue_offset + 1
            delivered = [Delivered(each, draw.randrange(1, 300), NOW_MS + draw.randrange(10**6)) for each in messages]
            batch = Batch(resource, context, delivered, draw.choice((0, 30_000, 12_345)), NOW_MS)
            elements = frames._wire.frames(resource.SerializeToString(), context, batch.invisible_ms, delivered)
            for each, element in zip(delivered, elements, strict=True):
                if element is None:
                    continue
                hot += 1
                expected = frames._element(batch, each)
                assert service_pb2.ReceiveMessageResponse.FromString(element[5:]) == (
                    service_pb2.ReceiveMessageResponse.FromString(expected[5:])
                )
                assert len(element) == len(expected)
                assert element[:5] == b"\0" + (len(element) - 5).to_bytes(4, "big")
    assert hot > len(records) / 2


def test_bounds_of_one_message_are_the_slow_way_s(store: Store) -> None:
    def request(**fields: object) -> bytes:
        message = definition_pb2.Message(topic=definition_pb2.Resource(name="orders"), body=b"b")
        message.system_properties.message_id = "id"
        message.system_properties.message_type = definition_pb2.NORMAL
        for name, value in fields.items():
            if name in ("body",):
                setattr(message, name, value)
            elif name == "user":
                message.user_properties.update(value)  # type: ignore[call-overload]
            else:
                setattr(message.system_properties, name, value)
        return service_pb2.SendMessageRequest(messages=[message]).SerializeToString()

    for fits, too_much in (
        ({"message_id": "i" * 255}, {"message_id": "i" * 256}),
        ({"trace_context": "t" * 1024}, {"trace_context": "t" * 1025}),
        ({"user": {"k": "v" * (16 * 1024 - 1)}}, {"user": {"k": "v" * 16 * 1024}}),
        ({"tag": "v" * 16 * 1024}, {"tag": "v" * (16 * 1024 + 1)}),
    ):
        assert slow(request(**fits)) is not None
        assert store.append_requests([request(**fits)], [b""]).answers[0] is not None
        assert store.append_requests([request(**too_much)], [b""]).answers == [None]
    assert store.append_requests([request(body=b"x" * (MESSAGE_BODY_BYTES_MAX + 1))], [b""]).answers == [None]
    # Larger than a file of this store's log: the slow way says so.
    assert store.append_requests([request(body=b"x" * (1 << 16))], [b""]).answers == [None]


def test_a_topic_takes_part_only_while_it_is_offered(store: Store) -> None:
    message = definition_pb2.Message(topic=definition_pb2.Resource(name="later"), body=b"b")
    message.system_properties.message_id = "id"
    message.system_properties.message_type = definition_pb2.NORMAL
    raw = service_pb2.SendMessageRequest(messages=[message]).SerializeToString()
    assert store.append_requests([raw], [b""]).answers == [None]
    store.offer_topic("later", 3)
    for _ in range(6):
        assert store.append_requests([raw], [b""]).answers[0] is not None
    assert [store.queue_range("later", queue) for queue in range(3)] == [(0, 2)] * 3
    store.offer_topic("later", 0)
    assert store.append_requests([raw], [b""]).answers == [None]
