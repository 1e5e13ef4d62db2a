"""Fixtures of the broker's system tests; the broker itself is in in_process.py."""

from __future__ import annotations

import pytest
from broker.in_process import running


@pytest.fixture
async def broker(tmp_path):
    async with running(tmp_path / "data") as started:
        yield started


@pytest.fixture
def client(broker):
    return broker.client()


@pytest.fixture
def admin(broker):
    return broker.admin()
