"""The ledger, under a clock of the test's own."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.agent.budget import Amount, Ledger, Limits, PerCandidate, plan
from tilecast.tools.model.base import BudgetRefused


class Clock:
    """Seconds that grow when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_starts_that_does_not_fit_beside_what_is_in_flight() -> None:
    ledger = Ledger(Limits(tokens=100), Clock())
    ledger.reserve("a", Amount(tokens=60))
    with pytest.raises(BudgetRefused, match=r"41 wanted, 40 of 100 left; raise --max-tokens") as refused:
        ledger.reserve("b", Amount(tokens=41))
    assert refused.value.meter == "tokens"
    ledger.reserve("b", Amount(tokens=40))
    ledger.settle("a", Amount(tokens=10))
    assert ledger.left("tokens") == 50
    assert (ledger.spent.tokens, ledger.reserved.tokens) == (10, 40)


def test_a_failed_request_gives_its_reservation_back() -> None:
    ledger = Ledger(Limits(usd=1.0), Clock())
    ledger.reserve("a", Amount(usd=1.0))
    ledger.settle("a", Amount())
    ledger.reserve("b", Amount(usd=1.0))
    assert ledger.holds("b") and not ledger.holds("a")


def test_a_key_is_reserved_once() -> None:
    ledger = Ledger(Limits(), Clock())
    ledger.reserve("a", Amount())
    with pytest.raises(ValueError, match="already reserved"):
        ledger.reserve("a", Amount())


def test_ten_tenths_fit_in_one() -> None:
    ledger = Ledger(Limits(usd=1.0), Clock())
    for number in range(10):
        ledger.reserve(str(number), Amount(usd=0.1))
        ledger.settle(str(number), Amount(usd=0.1))
    with pytest.raises(BudgetRefused):
        ledger.reserve("one more", Amount(usd=0.1))


def test_an_unknown_price_makes_dollars_unknown_for_good() -> None:
    ledger = Ledger(Limits(), Clock())
    ledger.reserve("a", Amount(tokens=5, usd=None))
    ledger.settle("a", Amount(tokens=5, usd=None))
    ledger.charge(Amount(tokens=5, usd=0.1))
    assert ledger.document().usd.spent is None
    assert ledger.document().tokens.spent == 10


def test_a_limit_of_dollars_refuses_an_unknown_price() -> None:
    ledger = Ledger(Limits(usd=5.0), Clock())
    with pytest.raises(BudgetRefused, match="price is unknown"):
        ledger.reserve("a", Amount(usd=None))


def test_minutes_run_by_the_clock_and_count_earlier_sessions() -> None:
    clock = Clock()
    ledger = Ledger(Limits(minutes=10), clock, minutes_before=7.0)
    clock.now += 120
    assert ledger.minutes == pytest.approx(9.0)
    assert ledger.blocked_by(Amount(evals=1), minutes=1.5) == "minutes"
    assert ledger.blocked_by(Amount(evals=1), minutes=0.5) is None
    clock.now += 60
    assert ledger.blocked_by(Amount()) == "minutes"


def test_device_seconds_that_are_used_up_block_even_a_free_evaluation() -> None:
    ledger = Ledger(Limits(gpu_seconds=2), Clock(), spent=Amount(gpu_seconds=2))
    assert ledger.blocked_by(Amount(evals=1, gpu_seconds=0.0)) == "gpu_seconds"
    assert ledger.blocked_by(Amount(tokens=10)) is None


def test_marks_are_reported_once_and_not_again_after_a_resume() -> None:
    ledger = Ledger(Limits(evals=10), Clock())
    ledger.charge(Amount(evals=4))
    assert ledger.warnings() == []
    ledger.charge(Amount(evals=1))
    assert ledger.warnings() == ["evals"]
    ledger.charge(Amount(evals=4))
    assert ledger.warnings() == ["evals"]
    assert ledger.warnings() == []
    assert Ledger(Limits(evals=10), Clock(), spent=Amount(evals=9)).warnings() == []


def test_both_marks_at_once_are_one_warning() -> None:
    ledger = Ledger(Limits(evals=10), Clock())
    ledger.charge(Amount(evals=9))
    assert ledger.warnings() == ["evals"]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60), st.integers(1, 300))
def test_spent_and_reserved_never_pass_the_limit(requests: list[tuple[int, int]], limit: int) -> None:
    ledger, open_keys = Ledger(Limits(tokens=limit), Clock()), []
    for number, (estimate, used) in enumerate(requests):
        try:
            ledger.reserve(str(number), Amount(tokens=estimate))
            open_keys.append((str(number), min(estimate, used)))
        except BudgetRefused:
            if open_keys:
                key, actual = open_keys.pop(0)
                ledger.settle(key, Amount(tokens=actual))
        assert ledger.spent.tokens + ledger.reserved.tokens <= limit


def test_many_threads_together_stay_within_the_limit() -> None:
    ledger, granted = Ledger(Limits(evals=50), Clock()), []

    def work(name: int) -> None:
        chance = random.Random(name)
        for number in range(40):
            key = f"{name}:{number}"
            try:
                ledger.reserve(key, Amount(evals=1))
            except BudgetRefused:
                continue
            if chance.random() < 0.5:
                ledger.settle(key, Amount(evals=1))
                granted.append(key)
            else:
                ledger.settle(key, Amount())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.spent.evals == len(granted) == 50
    assert ledger.reserved == Amount()


def test_a_plan_names_the_limit_that_ends_it() -> None:
    cost = PerCandidate(gpu_seconds=2.0, tokens=1000, usd=0.01, minutes=0.5, setup_gpu_seconds=5.0)
    found = plan(Limits(evals=40, gpu_seconds=25.0), cost)
    assert (found.candidates, found.limited_by) == (10, "gpu_seconds")
    assert found.expected == Amount(evals=10, gpu_seconds=25.0, tokens=10_000, usd=0.1)
    assert found.minutes == 5.0


def test_a_plan_without_limits_has_no_end_unless_the_space_has() -> None:
    cost = PerCandidate(gpu_seconds=1.0)
    assert plan(Limits(), cost).candidates is None
    assert plan(Limits(), cost, at_most=7).candidates == 7
    assert plan(Limits(evals=9), cost, at_most=7).limited_by is None


def test_a_plan_with_an_unknown_price_has_unknown_dollars() -> None:
    assert plan(Limits(evals=3), PerCandidate(gpu_seconds=1.0, usd=None)).expected.usd is None


def test_a_plan_keeps_room_for_what_is_set_aside() -> None:
    cost = PerCandidate(gpu_seconds=0.0, tokens=1_000, aside_tokens=5_000)
    for limit, expected in [(4_999, 0), (5_000, 1), (6_999, 2), (7_000, 3)]:
        assert plan(Limits(tokens=limit), cost).candidates == expected
