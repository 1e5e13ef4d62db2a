"""Waiting receives: who is woken, in what order, and the bounds."""

from __future__ import annotations

import asyncio

import pytest

from razzo.broker.long_polls import LongPolls
from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault

KEY = ("g", "t")


class Waiters:
    """Receives that wait, and the order in which they came back."""

    def __init__(self, polls):
        self.polls = polls
        self.back = []
        self.tasks = {}

    async def add(self, name, key=KEY, timeout_s=30.0):
        self.tasks[name] = asyncio.create_task(self._wait(name, key, timeout_s))
        await turn()

    async def _wait(self, name, key, timeout_s):
        self.back.append((name, await self.polls.wait(key, timeout_s)))

    async def end(self):
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def turn():
    """Lets everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def polls():
    return LongPolls(total_max=4, per_key_max=3)


@pytest.fixture
async def waiters(polls):
    made = Waiters(polls)
    yield made
    await made.end()
    assert len(polls) == 0


async def test_one_is_woken_at_a_time_the_longest_waiting_first(polls, waiters):
    for name in "abc":
        await waiters.add(name)
    for expected in ("a", "b", "c"):
        polls.wake(KEY)
        await turn()
        assert waiters.back.pop() == (expected, True)
        assert not waiters.back
    polls.wake(KEY)


async def test_two_wakes_reach_two(polls, waiters):
    await waiters.add("a")
    await waiters.add("b")
    polls.wake(KEY)
    polls.wake(KEY)
    await turn()
    assert waiters.back == [("a", True), ("b", True)]


async def test_a_topic_wakes_one_of_each_group(polls, waiters):
    await waiters.add("a1", ("a", "t"))
    await waiters.add("a2", ("a", "t"))
    await waiters.add("b1", ("b", "t"))
    await waiters.add("other", ("a", "u"))
    polls.wake_topic("t")
    await turn()
    assert sorted(waiters.back) == [("a1", True), ("b1", True)]


async def test_time_runs_out(polls, waiters):
    await waiters.add("a", timeout_s=0.01)
    await asyncio.wait_for(waiters.tasks["a"], 5)
    assert waiters.back == [("a", False)]


async def test_a_waiter_that_leaves_after_its_wake_passes_it_on(polls, waiters):
    await waiters.add("a")
    await waiters.add("b")
    polls.wake(KEY)
    waiters.tasks["a"].cancel()
    await turn()
    assert waiters.back == [("b", True)]


async def test_a_waiter_that_leaves_before_is_not_counted(polls, waiters):
    await waiters.add("a")
    await waiters.add("b")
    waiters.tasks["a"].cancel()
    await turn()
    polls.wake(KEY)
    await turn()
    assert waiters.back == [("b", True)]


async def test_bounds(polls, waiters):
    for name in "abc":
        await waiters.add(name)
    with pytest.raises(BrokerFault) as refused:
        await polls.wait(KEY, 1)
    assert refused.value.code == Code.TOO_MANY_REQUESTS
    await waiters.add("d", ("other", "t"))
    with pytest.raises(BrokerFault):
        await polls.wait(("third", "t"), 1)
    assert len(polls) == 4


async def test_the_end(polls, waiters):
    await waiters.add("a")
    polls.end_all()
    await turn()
    assert waiters.back == [("a", False)]
    assert await polls.wait(KEY, 30) is False
