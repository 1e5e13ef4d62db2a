"""The delivery core, event by event. Queue 0 of topic "t" for group "g"; times in milliseconds."""

from __future__ import annotations

import pytest

from razzo.broker.delivery import Delivery
from razzo.broker.delivery_events import Acked, Leased, PositionSet, Rescheduled
from razzo.broker.delivery_values import DeadLetter, DeliveryLimits, Policy, Position
from razzo.broker.lease_queue import Outcome

G, T, Q = "g", "t", 0
KEY = (G, T, Q)
NORMAL = Policy(fifo=False, attempts_max=17)
FIFO = Policy(fifo=True, attempts_max=17)
SECOND = 1_000


def pop(delivery, now_ms, *, stored, count=32, invisible_ms=10 * SECOND, policy=NORMAL, owner="", attempt_id=""):
    """What a receive does with a queue that holds `stored` messages: {offset: (attempt, hand-out time)}."""
    claim = delivery.claim(G, T, Q, count, now_ms, policy, attempt_id)
    new = range(claim.new_from, min(stored, claim.new_from + claim.new_max))
    return delivery.grant(
        claim,
        again=claim.again,
        done=[],
        new=list(new),
        next_offset=claim.new_from + len(new),
        now_ms=now_ms,
        visible_ms=now_ms + invisible_ms,
        owner=owner,
        attempt_id=attempt_id,
    )


@pytest.fixture
def delivery():
    core = Delivery()
    core.subscribe(G, T, {Q: 0})
    return core


def lease_of(delivery, offset):
    return delivery.find_lease(KEY, offset)


class TestLifeOfAMessage:
    """Every cell of the table in lease_queue.py."""

    @pytest.fixture
    def leased(self, delivery):
        assert pop(delivery, 0, stored=1) == {0: (1, 0)}
        return delivery

    @pytest.fixture
    def due(self, leased):
        leased.expire(10 * SECOND)
        return leased

    @pytest.fixture
    def done(self, leased):
        assert leased.ack(KEY, 0, 1, 0) is Outcome.DONE
        return leased

    def test_hand_out_new(self, delivery):
        assert pop(delivery, 5, stored=3, count=2) == {0: (1, 5), 1: (1, 5)}
        assert pop(delivery, 6, stored=3) == {2: (1, 6)}

    def test_leased_is_never_offered(self, leased):
        assert pop(leased, 10 * SECOND - 1, stored=1) == {}

    def test_hand_out_due(self, due):
        assert pop(due, 10 * SECOND, stored=1) == {0: (2, 10 * SECOND)}

    def test_done_is_never_offered(self, done):
        assert pop(done, 60 * SECOND, stored=1) == {}

    def test_deadline_makes_due_and_wakes(self, leased):
        leased.take_woken()
        assert leased.next_deadline_ms() == 10 * SECOND
        leased.expire(10 * SECOND - 1)
        assert leased.take_woken() == set()
        leased.expire(10 * SECOND)
        assert leased.take_woken() == {(G, T)}

    @pytest.mark.parametrize("state", ["leased", "due"])
    def test_ack_of_this_delivery(self, state, request):
        core = request.getfixturevalue(state)
        assert core.ack(KEY, 0, 1, 0) is Outcome.DONE
        assert core.positions(G, T) == [Position(Q, 1, 1, 0)]
        assert pop(core, 99 * SECOND, stored=1) == {}

    @pytest.mark.parametrize(("attempt", "pop_ms"), [(2, 0), (1, 7)])
    @pytest.mark.parametrize("state", ["leased", "due"])
    def test_ack_of_another_delivery(self, state, attempt, pop_ms, request):
        core = request.getfixturevalue(state)
        assert core.ack(KEY, 0, attempt, pop_ms) is Outcome.STALE
        assert lease_of(core, 0) == (1, 0)

    def test_ack_before_hand_out(self, delivery):
        assert delivery.ack(KEY, 0, 1, 0) is Outcome.STALE

    def test_ack_again(self, done):
        assert done.ack(KEY, 0, 1, 0) is Outcome.ALREADY
        assert done.ack(KEY, 0, 9, 9) is Outcome.ALREADY

    def test_ack_of_an_unknown_subscription(self, delivery):
        assert delivery.ack(("other", T, Q), 0, 1, 0) is Outcome.STALE

    def test_ack_after_redelivery(self, due):
        pop(due, 10 * SECOND, stored=1)
        assert due.ack(KEY, 0, 1, 0) is Outcome.STALE
        assert due.ack(KEY, 0, 2, 10 * SECOND) is Outcome.DONE

    @pytest.mark.parametrize("state", ["leased", "due"])
    def test_change_of_this_delivery(self, state, request):
        core = request.getfixturevalue(state)
        assert core.change_visible(KEY, 0, 1, 0, 30 * SECOND) is Outcome.DONE
        assert pop(core, 30 * SECOND - 1, stored=1) == {}
        assert pop(core, 30 * SECOND, stored=1) == {0: (2, 30 * SECOND)}

    def test_change_to_now(self, leased):
        leased.change_visible(KEY, 0, 1, 0, 3 * SECOND)
        assert pop(leased, 3 * SECOND, stored=1) == {0: (2, 3 * SECOND)}

    def test_change_of_another_delivery(self, leased):
        assert leased.change_visible(KEY, 0, 2, 0, 30 * SECOND) is Outcome.STALE

    def test_change_of_what_is_done(self, done):
        assert done.change_visible(KEY, 0, 1, 0, 30 * SECOND) is Outcome.STALE

    def test_change_before_hand_out(self, delivery):
        assert delivery.change_visible(KEY, 0, 1, 0, 30 * SECOND) is Outcome.STALE

    def test_too_many_tries(self, due):
        claim = due.claim(G, T, Q, 32, 10 * SECOND, Policy(False, attempts_max=1))
        assert (claim.dead, claim.again) == ([DeadLetter(0, 1)], [])
        due.grant(claim, again=[], done=[0], new=[], next_offset=1, now_ms=10 * SECOND, visible_ms=20 * SECOND)
        assert due.positions(G, T) == [Position(Q, 1, 1, 0)]

    @pytest.mark.parametrize("state", ["leased", "due", "done"])
    def test_reset_back(self, state, request):
        core = request.getfixturevalue(state)
        core.reset(G, T, Q, 0)
        assert pop(core, 20 * SECOND, stored=1) == {0: (1, 20 * SECOND)}
        assert core.ack(KEY, 0, 1, 0) is Outcome.STALE

    @pytest.mark.parametrize("state", ["leased", "due", "done"])
    def test_reset_forward(self, state, request):
        core = request.getfixturevalue(state)
        core.reset(G, T, Q, 5)
        assert core.positions(G, T) == [Position(Q, 5, 5, 0)]
        assert pop(core, 60 * SECOND, stored=6) == {5: (1, 60 * SECOND)}

    def test_log_was_cut(self, delivery):
        pop(delivery, 0, stored=3)
        delivery.set_position(G, T, Q, 1, drop_leases=True)
        assert delivery.positions(G, T) == [Position(Q, 0, 1, 1)]
        assert lease_of(delivery, 0) == (1, 0)
        assert lease_of(delivery, 1) is None


class TestSubscription:
    def test_starts_where_it_was_first_seen(self):
        core = Delivery()
        assert core.subscribe(G, T, {0: 7, 1: 3})
        assert not core.subscribe(G, T, {0: 9, 1: 9})
        assert core.positions(G, T) == [Position(0, 7, 7, 0), Position(1, 3, 3, 0)]

    def test_a_queue_added_later_starts_at_its_beginning(self):
        core = Delivery()
        core.subscribe(G, T, {0: 7})
        claim = core.claim(G, T, 1, 32, 0, NORMAL)
        assert claim.new_from == 0

    def test_forget_by_group_and_by_topic(self):
        core = Delivery()
        for group, topic in (("a", "x"), ("a", "y"), ("b", "x")):
            core.subscribe(group, topic, {0: 0})
        core.forget(group="a")
        assert list(core.subscriptions()) == [("b", "x")]
        core.forget(topic="x")
        assert list(core.subscriptions()) == []
        assert core.describe() == "0 subscriptions, 0 queues, 0 leases"


class TestBounds:
    def test_no_new_message_above_the_bound_and_woken_below_it(self):
        core = Delivery(DeliveryLimits(leases_per_queue_max=2))
        core.subscribe(G, T, {Q: 0})
        assert list(pop(core, 0, stored=9)) == [0, 1]
        core.take_woken()
        assert pop(core, 1, stored=9) == {}
        assert core.ack(KEY, 0, 1, 0) is Outcome.DONE
        assert core.take_woken() == {(G, T)}
        assert list(pop(core, 2, stored=9)) == [2]

    def test_due_messages_come_at_the_bound(self):
        core = Delivery(DeliveryLimits(leases_per_queue_max=2))
        core.subscribe(G, T, {Q: 0})
        pop(core, 0, stored=9)
        assert list(pop(core, 10 * SECOND, stored=9)) == [0, 1]

    def test_dead_letters_of_one_claim(self):
        core = Delivery(DeliveryLimits(dead_per_claim_max=2))
        core.subscribe(G, T, {Q: 0})
        pop(core, 0, stored=5)
        claim = core.claim(G, T, Q, 32, 10 * SECOND, Policy(False, attempts_max=1))
        assert [letter.offset for letter in claim.dead] == [0, 1]

    def test_deadlines_are_made_anew_when_most_are_stale(self):
        core = Delivery(DeliveryLimits(stale_deadlines_max=4))
        core.subscribe(G, T, {Q: 0})
        pop(core, 0, stored=1)
        for step in range(100):
            core.change_visible(KEY, 0, 1, 0, 60 * SECOND + step)
        assert len(core._deadlines) <= 4 + 2 * 1 + 1
        assert pop(core, 60 * SECOND + 98, stored=1) == {}
        assert pop(core, 60 * SECOND + 99, stored=1) == {0: (2, 60 * SECOND + 99)}

    def test_an_unused_claim_is_given_back(self, delivery):
        pop(delivery, 0, stored=3)
        claim = delivery.claim(G, T, Q, 2, 10 * SECOND, NORMAL)
        assert claim.again == [0, 1]
        delivery.give_up(claim)
        assert list(pop(delivery, 10 * SECOND, stored=3)) == [0, 1, 2]


class TestFifo:
    def test_nothing_while_one_message_is_out(self, delivery):
        assert list(pop(delivery, 0, stored=3, count=2, policy=FIFO)) == [0, 1]
        assert pop(delivery, 1, stored=3, policy=FIFO) == {}
        delivery.ack(KEY, 0, 1, 0)
        assert pop(delivery, 2, stored=3, policy=FIFO) == {}
        delivery.take_woken()
        delivery.ack(KEY, 1, 1, 0)
        assert delivery.take_woken() == {(G, T)}
        assert list(pop(delivery, 3, stored=3, policy=FIFO)) == [2]

    def test_unacknowledged_first_and_in_order(self, delivery):
        pop(delivery, 0, stored=3, count=3, policy=FIFO)
        delivery.ack(KEY, 1, 1, 0)
        assert list(pop(delivery, 10 * SECOND, stored=5, policy=FIFO)) == [0, 2, 3, 4]

    def test_none_overtakes_what_does_not_fit(self, delivery):
        pop(delivery, 0, stored=3, count=3, policy=FIFO)
        assert list(pop(delivery, 10 * SECOND, stored=5, count=2, policy=FIFO)) == [0, 1]
        assert pop(delivery, 10 * SECOND, stored=5, policy=FIFO) == {}

    def test_a_failed_message_holds_the_rest(self, delivery):
        pop(delivery, 0, stored=1, policy=FIFO)
        delivery.change_visible(KEY, 0, 1, 0, 5 * SECOND)
        assert pop(delivery, 4 * SECOND, stored=2, policy=FIFO) == {}
        assert list(pop(delivery, 5 * SECOND, stored=2, policy=FIFO)) == [0, 1]

    def test_the_same_attempt_gets_the_same_messages(self, delivery):
        first = pop(delivery, 0, stored=3, count=2, policy=FIFO, attempt_id="a")
        assert delivery.repeating(G, T, "a", 1) == [Q]
        assert pop(delivery, 5 * SECOND, stored=3, policy=FIFO, attempt_id="a") == first
        assert pop(delivery, 5 * SECOND, stored=3, policy=FIFO, attempt_id="b") == {}
        # its time starts anew
        assert pop(delivery, 10 * SECOND, stored=3, policy=FIFO) == {}
        assert list(pop(delivery, 15 * SECOND, stored=3, policy=FIFO, attempt_id="a")) == [0, 1, 2]

    def test_an_attempt_that_ran_out_counts(self, delivery):
        pop(delivery, 0, stored=1, policy=FIFO, attempt_id="a")
        assert pop(delivery, 10 * SECOND, stored=1, policy=FIFO, attempt_id="a") == {0: (2, 10 * SECOND)}

    def test_an_attempt_that_failed_waits(self, delivery):
        pop(delivery, 0, stored=1, policy=FIFO, attempt_id="a")
        delivery.change_visible(KEY, 0, 1, 0, 5 * SECOND)
        assert pop(delivery, 1 * SECOND, stored=1, policy=FIFO, attempt_id="a") == {}

    def test_an_unordered_group_ignores_the_attempt(self, delivery):
        pop(delivery, 0, stored=1, attempt_id="a")
        assert pop(delivery, 1, stored=2, attempt_id="a") == {1: (1, 1)}


class TestOwners:
    LIMITS = DeliveryLimits(renew_steps_ms=(100, 300), renew_total_ms=1_000, owner_lost_ms=10)

    @pytest.fixture
    def owned(self):
        core = Delivery(self.LIMITS)
        core.subscribe(G, T, {Q: 0})
        pop(core, 0, stored=1, invisible_ms=50, owner="c1")
        return core

    def test_prolonged_by_growing_steps_up_to_the_limit(self, owned):
        deadlines = []
        while pop(owned, now_ms := owned.next_deadline_ms(), stored=1) == {}:
            deadlines.append(now_ms)
        assert deadlines == [50, 150, 450, 750]
        assert now_ms == 1_000

    def test_a_lost_owner_lets_go(self, owned):
        owned.owner_lost("c1", 20)
        assert pop(owned, 29, stored=1) == {}
        assert pop(owned, 30, stored=1) == {0: (2, 30)}

    def test_another_owner_is_not_touched(self, owned):
        owned.owner_lost("c2", 20)
        assert pop(owned, 49, stored=1) == {}

    def test_a_changed_deadline_is_kept(self, owned):
        assert owned.owner_of(KEY, 0) == "c1"
        owned.change_visible(KEY, 0, 1, 0, 70)
        assert owned.owner_of(KEY, 0) == ""
        assert pop(owned, 70, stored=1) == {0: (2, 70)}


class TestLog:
    def test_events(self, delivery):
        assert delivery.journal.drain() == [PositionSet(KEY, 0, False)]
        pop(delivery, 0, stored=3)
        delivery.ack(KEY, 0, 1, 0)
        delivery.ack(KEY, 2, 1, 0)
        delivery.change_visible(KEY, 1, 1, 0, 5)
        assert delivery.journal.drain() == [
            Leased(KEY, (0, 1, 2), (1, 1, 1), 0, 10 * SECOND, 3),
            Acked(KEY, [0, 2]),
            Rescheduled(KEY, 1, 5, 0),
        ]
        assert delivery.journal.drain() == []

    def test_acks_around_another_event_stay_in_order(self, delivery):
        pop(delivery, 0, stored=1)
        delivery.ack(KEY, 0, 1, 0)
        pop(delivery, 1, stored=2)
        delivery.ack(KEY, 1, 1, 1)
        kinds = [type(event).__name__ for event in delivery.journal.drain()]
        assert kinds == ["PositionSet", "Leased", "Acked", "Leased", "Acked"]

    def test_messages_that_the_filter_dropped_are_skipped_once(self, delivery):
        delivery.journal.drain()
        claim = delivery.claim(G, T, Q, 32, 0, NORMAL)
        delivery.grant(claim, again=[], done=[], new=[], next_offset=40, now_ms=0, visible_ms=1)
        assert delivery.journal.drain() == [PositionSet(KEY, 40, False)]
        assert delivery.claim(G, T, Q, 32, 0, NORMAL).new_from == 40


class TestLag:
    def test_ready_and_in_flight(self, delivery):
        pop(delivery, 0, stored=3)
        delivery.ack(KEY, 0, 1, 0)
        lag = delivery.lag(G, T, {0: (0, 10), 1: (5, 6)})
        assert (lag.ready, lag.in_flight, lag.messages) == (8, 2, 10)

    def test_unknown_is_none(self, delivery):
        assert delivery.lag("nobody", T, {0: (0, 10)}) is None

    def test_deleted_messages_are_no_backlog(self, delivery):
        assert delivery.lag(G, T, {0: (8, 10)}).messages == 2
