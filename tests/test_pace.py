"""How many calls a candidate gets: fewer only where calls are slow, not where one of them was held up."""

from __future__ import annotations

import torch

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.pace import CALLS, LEAST_CALLS, Pace
from tilecast.sandbox.harness.judge.study import study_problem
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.source import source_sha256


def case(name: str = "small", answer_s: float = 0.001) -> WorkloadCase:
    made = WorkloadCase(name, [], {}, {}, [], None, "open")
    made.answer_s = answer_s
    return made


def test_a_call_that_was_held_up_costs_no_questions() -> None:
    pace, here = Pace("cpu", 1, timeout_s=60.0, small=1), case()
    for seconds in (4.0, 0.01, 0.01):
        pace.note(here, seconds)
    assert pace.calls(here) > CALLS and pace.affords(14, here)
    pace.note(here, 5.0)
    assert pace.calls(here) > CALLS and pace.affords(14, here)


def test_slow_calls_are_made_fewer() -> None:
    pace, here = Pace("cpu", 1, timeout_s=60.0, small=1), case()
    for _ in range(3):
        pace.note(here, 1.5)
    assert pace.calls(here) == 12 and not pace.affords(14, here)
    for _ in range(3):
        pace.note(here, 10.0)
    assert pace.calls(here) == LEAST_CALLS


def test_workloads_have_times_of_their_own_and_one_that_has_none_yet_takes_the_slowest() -> None:
    pace, small, large, other = Pace("cuda", 3, timeout_s=60.0, small=1), case("small"), case("large"), case("other")
    assert not pace.knows_any and pace.call_s(small) == 0.0
    pace.note(small, 0.001)
    assert pace.knows_any and pace.call_s(other) == 0.001
    for _ in range(2):
        pace.note(large, 2.0)
    assert (pace.call_s(small), pace.call_s(large), pace.call_s(other)) == (0.001, 2.0, 2.0)
    assert pace.affords(14, small) and not pace.affords(14, large)


def test_a_slow_reference_is_asked_less() -> None:
    pace = Pace("cpu", 1, timeout_s=60.0, small=1)
    assert pace.calls(case(answer_s=0.5)) == 12 and not pace.affords(14, case(answer_s=0.5))


SLOW_AT_FIRST = """
import time
import torch
import torch.nn as nn

WORKLOADS = {'small': {'n': 6}}


class Model(nn.Module):
    calls = 0

    def forward(self, x):
        Model.calls += 1
        if Model.calls < 4:
            time.sleep(0.7)
        return x + 1


def get_inputs(n=64):
    return [torch.randn(n, n)]


def get_init_inputs():
    return []
"""


def test_what_the_references_first_runs_pay_for_is_forgotten() -> None:
    """Seconds of the study decided how many calls every candidate was to get: on a busy machine few."""
    zygotes = Zygotes()
    problem = {"name": "p", "source": SLOW_AT_FIRST, "sha256": source_sha256(SLOW_AT_FIRST)}
    study = study_problem(zygotes, problem, torch.device("cpu"), lambda text: None)
    try:
        (here,) = study.cases
        before = here.answer_s
        study.builder.reference.select("small")
        inputs = study.builder.inputs(here)
        study.builder.answer(here, inputs, study.builder.run(here, inputs, 1), 1)
        assert here.answer_s <= before and here.answer_s < 0.7
    finally:
        study.close()
        zygotes.close()
