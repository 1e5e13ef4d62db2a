"""A store that failed for good: calls are refused, and the broker asks to be stopped."""

from __future__ import annotations

import asyncio

import pytest
from broker.in_process import Code, RunningBroker
from broker.in_process import running as running_broker

from razzo.broker import main as broker_main
from razzo.storage import Store

T = "orders"


@pytest.fixture
def stores(monkeypatch):
    """The stores that brokers open."""
    opened = []

    class Watched(Store):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            opened.append(self)

    monkeypatch.setattr(broker_main, "Store", Watched)
    return opened


async def test_sends_are_refused_and_the_broker_stops(tmp_path, stores):
    async with running_broker(tmp_path / "data", retention_interval_s=0.1) as broker:
        client = broker.client()
        await broker.admin().topic(T)
        await client.send_ok(T)
        stores[0]._disk_failed("fdatasync: input/output error")
        answer = await client.send(client.message(T))
        assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        await asyncio.wait_for(broker.life.wait_stop_wanted(), 5)
        assert "input/output error" in str(broker.life.failure)


async def test_a_full_disk_slows_clients_down_and_heals(tmp_path, stores):
    """What consumers do meanwhile reaches the log when there is room again."""
    data = tmp_path / "data"
    broker = await RunningBroker(data, retention_interval_s=60.0).start()
    try:
        client = broker.client()
        await broker.admin().topic(T)
        await client.subscribe(T, "g")
        for n in range(3):
            await client.send_ok(T, b"%d" % n)
        stores[0]._disk_full = True
        answer = await client.send(client.message(T))
        assert answer.status.code == Code.TOO_MANY_REQUESTS
        messages = await client.take(T, "g")
        assert len(messages) == 3
        await client.ack_ok(T, "g", *messages[:2])
        stores[0]._disk_full = False
        await client.send_ok(T, b"3")
    finally:
        await broker.stop()
    async with running_broker(data) as broker:
        (position,) = await broker.admin().positions("g", T)
        assert (position.committed_offset, position.next_offset, position.outstanding) == (2, 3, 1)
