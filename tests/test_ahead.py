"""What is drawn ahead: in order, bounded, stopped at once, and failing where it is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from tilecast.sandbox.harness.judge.ahead import Ahead

CPU = torch.device("cpu")


def test_all_items_come_in_order() -> None:
    assert list(Ahead(iter(range(100)), lambda item: 1, 10, CPU)) == list(range(100))


def test_it_is_never_further_ahead_than_allowed() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(50):
            drawn.append(number)
            yield number

    ahead = Ahead(items(), lambda item: 10, 30, CPU)
    for taken in range(10):
        assert next(ahead) == taken
        time.sleep(0.02)
        assert len(drawn) <= taken + 1 + 3 + 1
    ahead.close()


def test_one_item_larger_than_the_bound_still_comes() -> None:
    assert list(Ahead(iter("ab"), lambda item: 1000, 1, CPU)) == ["a", "b"]


def test_closing_ends_the_thread_and_drops_what_waits() -> None:
    ahead = Ahead(iter(int, 1), lambda item: 1, 5, CPU)
    assert next(ahead) == 0
    ahead.close()
    assert not any(thread.name == "drawing ahead" and thread.is_alive() for thread in threading.enumerate())


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the reference failed")

    ahead = Ahead(items(), lambda item: 1, 100, CPU)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="the reference failed"):
        next(ahead)


def test_nothing_is_recorded_for_gradients() -> None:
    weight = torch.ones(2, requires_grad=True)

    def items() -> Iterator[torch.Tensor]:
        yield weight * 2

    assert not next(Ahead(items(), lambda item: 1, 100, CPU)).requires_grad
