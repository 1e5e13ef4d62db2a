"""The kernel's way to read acknowledgements, against protobuf and `ReceiptHandles`."""

from __future__ import annotations

import random

import pytest

from apache.rocketmq.v2 import service_pb2
from razzo.broker.handles import Receipt, ReceiptHandles, context_of
from razzo.protocol.errors import RequestRefused
from razzo.runtime.status import ok
from razzo.storage import AckWire, siphash24

HANDLES = ReceiptHandles("broker-a", bytes(range(16)), siphash24)
OTHERS = ReceiptHandles("broker-b", bytes(range(16)), siphash24)
ENTRIES_MAX = 8


@pytest.fixture
def wire() -> AckWire:
    return AckWire(HANDLES.prefix, HANDLES.secret, entries_max=ENTRIES_MAX)


def random_request(draw: random.Random) -> bytes:
    request = service_pb2.AckMessageRequest()
    group, topic = draw.choice(("group", "group", "gruppe-ä", "g", "")), draw.choice(("topic", "%DLQ%group"))
    request.group.name, request.topic.name = group, topic
    if draw.random() < 0.05:
        request.topic.resource_namespace = "space"
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3, 8, 9))):
        receipt = Receipt(*(draw.randrange(1 << bits) for bits in (32, 64, 32, 64)))
        maker = OTHERS if draw.random() < 0.03 else HANDLES
        handle = maker.make(context_of(group, "elsewhere" if draw.random() < 0.03 else topic), receipt)
        if draw.random() < 0.1:
            at = draw.randrange(len(handle))
            changed = handle[:at] + draw.choice("A_-=+é ") + handle[at + 1 :]
            handle = draw.choice((changed, handle[:at], handle + "A", ""))
        entry = request.entries.add(message_id=draw.choice(("", f"id{draw.randrange(99)}", "ü")), receipt_handle=handle)
        if draw.random() < 0.03:
            entry.lite_topic = "lite"
    encoded = request.SerializeToString()
    if draw.random() < 0.1 and encoded:
        at = draw.randrange(len(encoded))
        encoded = encoded[:at] + bytes([encoded[at] ^ 1 << draw.randrange(8)]) + encoded[at + 1 :]
    return encoded


@pytest.mark.parametrize("seed", range(6))
def test_acks_are_read_as_the_slow_way_reads_them(wire: AckWire, seed: int) -> None:
    draw = random.Random(seed)
    taken = 0
    for _ in range(1_000):
        raw = random_request(draw)
        named = wire.read(raw)
        if named is None:
            continue
        taken += 1
        request = service_pb2.AckMessageRequest.FromString(raw)
        group, topic, receipts = named
        assert (request.group.name, request.topic.name) == (group, topic)
        assert not request.group.resource_namespace
        assert not request.topic.resource_namespace
        assert 0 < len(request.entries) <= ENTRIES_MAX
        context = context_of(group, topic)
        assert receipts == [tuple(HANDLES.read(context, entry.receipt_handle)) for entry in request.entries]
        expected = service_pb2.AckMessageResponse(status=ok())
        for entry in request.entries:
            expected.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=ok())
        assert wire.answer(raw) == expected.SerializeToString(deterministic=True)
    assert taken > 100


@pytest.mark.parametrize("position", range(0, 58, 3))
def test_no_changed_handle_is_taken(wire: AckWire, position: int) -> None:
    handle = HANDLES.make(context_of("group", "topic"), Receipt(1, 2, 3, 4))
    assert position < len(handle)
    changed = handle[:position] + ("A" if handle[position] != "A" else "B") + handle[position + 1 :]
    request = service_pb2.AckMessageRequest()
    request.group.name, request.topic.name = "group", "topic"
    request.entries.add(receipt_handle=changed)
    assert wire.read(request.SerializeToString()) is None
    with pytest.raises(RequestRefused):
        HANDLES.read(context_of("group", "topic"), changed)
