"""When a service that died is started again."""

from __future__ import annotations

from razzo.cli.restarts import DELAY_FIRST_MS, DELAY_MAX_MS, WINDOW_MS, GiveUp, Restarts, StartAgain


def test_delays_double_up_to_a_bound_and_then_it_is_over() -> None:
    restarts = Restarts(8)
    answers = [restarts.died(now, was_ready=True) for now in range(8)]
    assert [answer.delay_ms for answer in answers if isinstance(answer, StartAgain)] == [
        DELAY_FIRST_MS,
        200,
        400,
        800,
        1_600,
        3_200,
        DELAY_MAX_MS,
        DELAY_MAX_MS,
    ]
    assert restarts.died(8, was_ready=True) == GiveUp("more than 8 times in 10 minutes")


def test_deaths_are_forgotten_after_the_window() -> None:
    restarts = Restarts(1)
    assert restarts.died(0, was_ready=True) == StartAgain(DELAY_FIRST_MS, 1, 1)
    assert isinstance(restarts.died(WINDOW_MS - 1, was_ready=True), GiveUp)
    assert restarts.died(WINDOW_MS, was_ready=True) == StartAgain(DELAY_FIRST_MS, 1, 1)


def test_none_allowed() -> None:
    assert restarts_reason(Restarts(0)) == "and is not to be started again (--restarts 0)"


def test_what_was_never_ready_is_not_started_again() -> None:
    assert Restarts(5).died(0, was_ready=False) == GiveUp("before it was ready")


def restarts_reason(restarts: Restarts) -> str:
    answer = restarts.died(0, was_ready=True)
    assert isinstance(answer, GiveUp)
    return answer.reason
