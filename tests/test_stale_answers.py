"""A wrong answer is called a kept one only where it is the earlier call's, not where both calls' answers are nearly the same."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.checker import Checker
from tilecast.sandbox.harness.judge.failure import Rejected
from tilecast.sandbox.harness.judge.oracle import Answer, RawOutputs, expect
from tilecast.sandbox.harness.judge.probes import Step
from tilecast.sandbox.harness.judge.segments import Call


def right(x: Tensor) -> Tensor:
    return x * 1.25


def answer_for(x: Tensor) -> Answer:
    spread = torch.full(x.shape, 2.0**-24 / 4, dtype=torch.float64)
    return expect(RawOutputs([right(x)], [x.double() * 1.25], [spread]), None, inputs=[x])


def tighter(answer: Answer, by: float) -> Answer:
    (only,) = answer.outputs
    assert only.allowed is not None
    allowed = replace(
        only.allowed,
        per_row=only.allowed.per_row / by,
        per_size=only.allowed.per_size / by,
        row_l2=only.allowed.row_l2 / by,
    )
    return replace(answer, outputs=(replace(only, allowed=allowed),))


def refusal(earlier: Answer, own: Answer, value: Tensor) -> Rejected:
    """What the checker says of ``value`` where ``own`` is right and a call with the answer ``earlier`` was made before."""
    claim = SimpleNamespace(
        spec=SimpleNamespace(
            shape=tuple(value.shape), dtype=value.dtype, stride=value.stride(), elements=value.numel()
        ),
        device="cpu",
        plain=True,
        fits=True,
        in_input=None,
        missing="",
    )
    result = SimpleNamespace(claims=[claim], findings=[], rng_changed=False, outputs=[value], moved=[], tree=None)
    spec = SimpleNamespace(shape=tuple(value.shape), dtype=value.dtype, stride=value.stride(), extent=value.numel())
    contract = SimpleNamespace(aliases=(), written_inputs=(), written_state=(), consumes_rng=False)
    case = SimpleNamespace(name="full", specs=[spec], overlaps=(), contract=contract, is_small=True, tree={})
    session = SimpleNamespace(
        options=SimpleNamespace(device=torch.device("cpu")),
        memory=SimpleNamespace(inputs_now=lambda _: []),
        looking=lambda *_, **__: nullcontext([]),
        recheck=lambda _: [[]],
    )
    checker = Checker(cast(Any, session))
    step = Step("as given", "elements")
    checker._remembered["full"] = deque([Call(step, [], (), earlier, 0)])
    with pytest.raises(Rejected) as caught:
        checker._judge(
            cast(Any, case), Call(step, [], (), own, 1), cast(Any, SimpleNamespace(values=[])), cast(Any, result)
        )
    return caught.value


@pytest.fixture
def calls() -> tuple[Tensor, Tensor]:
    """Inputs of two calls in a row: three elements differ, by little."""
    before = torch.randn(64, 256, generator=torch.Generator().manual_seed(3)).bfloat16()
    after = before.clone()
    after[5, :3] *= 1.0625
    return before, after


def test_an_inaccurate_answer_is_not_called_a_kept_one(calls: tuple[Tensor, Tensor]) -> None:
    before, after = calls
    earlier, own = answer_for(before), tighter(answer_for(after), 64)
    inaccurate = right(after).clone()
    inaccurate[40] *= 1.02
    found = refusal(tighter(earlier, 0.01), own, inaccurate)
    assert found.status == "INCORRECT_NUMERICAL" and "before" not in found.reason and not found.rule


def test_where_both_answers_are_the_same_nothing_shows_which_it_is(calls: tuple[Tensor, Tensor]) -> None:
    before, _ = calls
    inaccurate = right(before).clone()
    inaccurate[40] *= 1.02
    found = refusal(tighter(answer_for(before), 0.01), tighter(answer_for(before), 64), inaccurate)
    assert found.status == "INCORRECT_NUMERICAL"


def test_an_earlier_answer_returned_again_is_called_one(calls: tuple[Tensor, Tensor]) -> None:
    before, after = calls
    found = refusal(answer_for(before), tighter(answer_for(after), 64), right(before))
    assert found.status == "REWARD_HACK" and found.rule == "stale-output" and "made 1 before" in found.reason


def test_an_earlier_answer_of_integers_too() -> None:
    before = torch.arange(6000)
    after = before.clone()
    after[7] = 3
    answers = [expect(RawOutputs([x], [x], [None]), None, inputs=[x]) for x in (before, after)]
    found = refusal(*answers, before.clone())
    assert found.status == "REWARD_HACK" and found.rule == "stale-output"
