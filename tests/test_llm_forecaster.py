"""The language model as a forecaster: what it is told, how its answers are read, and how it is pooled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from forecast_parts import EAGER, KERNEL, candidate, context

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.tools.forecast import make_forecaster
from tilecast.tools.forecast.ensemble import EnsembleForecaster
from tilecast.tools.forecast.learned import LearnedForecaster
from tilecast.tools.forecast.llm import LlmForecaster
from tilecast.tools.model.base import BudgetRefused, CallJournal, ChatAnswer, ChatRequest, Usage
from tilecast.tools.model.memory import InMemoryJournal
from tilecast.tools.propose.base import Tried

FAST = [0.0, 0.0, 0.0, 0.05, 0.15, 0.6, 0.2, 0.0]


class Scripted:
    """Answers from a queue; keeps what it was asked."""

    name = "scripted"

    def __init__(self, *texts: str, refuse: bool = False) -> None:
        self.texts, self.asked, self.refuse = list(texts), [], refuse

    def complete(self, request: ChatRequest, journal: CallJournal) -> ChatAnswer:
        if self.refuse:
            raise BudgetRefused("tokens", "no room")
        self.asked.append(request)
        return ChatAnswer(
            text=self.texts.pop(0), usage=Usage(input_tokens=100, output_tokens=20, usd=0.004), seconds=2.0
        )

    def interrupt(self) -> None: ...


def said(*items: Any) -> str:
    return json.dumps({"forecasts": list(items)})


def llm(*texts: str, **options: Any) -> tuple[LlmForecaster, Scripted]:
    model = Scripted(*texts)
    return LlmForecaster(model, InMemoryJournal(), **options), model


def test_several_candidates_in_one_question() -> None:
    answer = said(
        {"candidate": 2, "p": [1, 0, 0, 0, 0, 0, 0, 0], "why": "slow"}, {"candidate": 1, "p": FAST, "p_valid": 0.8}
    )
    forecaster, model = llm(f"Here it is:\n```json\n{answer}\n```")
    first, second = forecaster.forecast([candidate(KERNEL), candidate(EAGER, "e")], context())
    assert len(model.asked) == 1
    assert [round(b.p, 2) for b in first.bins] == pytest.approx(FAST, abs=0.03)
    assert first.p_valid == 0.8 and first.p_faster > 0.9 and not first.abstain
    assert second.p_faster < 0.05 and second.why == "slow"
    assert (first.cost.tokens, first.cost.usd, first.cost.seconds) == (60, 0.002, 1.0)
    text = model.asked[0].messages[1]["content"]
    assert "fastest of all" not in text and "Scale and shift" not in text and "4800 GB/s" in text
    assert "k" not in [line.strip() for line in text.splitlines()]


def test_groups_follow_the_limit() -> None:
    forecaster, model = llm(said({"p": FAST}), said({"p": FAST}), per_call=1)
    forecaster.forecast([candidate(KERNEL), candidate(EAGER)], context())
    assert len(model.asked) == 2 and model.asked[0].key != model.asked[1].key


def test_probabilities_are_renormalised() -> None:
    forecaster, _ = llm(said({"candidate": 1, "p": [0, 0, 0, 0, 2, 2, 0, 0]}))
    (found,) = forecaster.forecast([candidate()], context())
    assert found.bins[4].p == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I would rather not.",
        "{",
        said({"candidate": 1, "p": [1, 2, 3]}),
        said({"candidate": 1, "p": [0] * 8}),
        said({"candidate": 1, "p": [float("nan")] * 8}),
        said({"candidate": 7, "p": FAST}),
        said({"candidate": 1, "p": ["0.5"] * 8}),
        said({"candidate": 1, "p": [-1, 2, 0, 0, 0, 0, 0, 0]}),
        "[1, 2, 3]",
    ],
)
def test_an_unreadable_answer_is_an_abstention(text: str) -> None:
    forecaster, _ = llm(text)
    (found,) = forecaster.forecast([candidate()], context())
    assert found.abstain and found.latency_ms is None and found.cost.tokens == 120


def test_without_a_baseline_or_a_known_gpu_it_is_silent() -> None:
    forecaster, _ = llm(said({"candidate": 1, "p": FAST}))
    assert forecaster.forecast([candidate()], context(baseline_ms=None))[0].abstain
    silent, model = llm()
    assert silent.forecast([candidate()], context(gpu="Voodoo 2"))[0].abstain and not model.asked


def ensemble(*texts: str, refuse: bool = False) -> EnsembleForecaster:
    return EnsembleForecaster(
        LearnedForecaster.load(), LlmForecaster(Scripted(*texts, refuse=refuse), InMemoryJournal())
    )


def test_the_ensemble_pools_both() -> None:
    (found,) = ensemble(said({"candidate": 1, "p": FAST})).forecast([candidate()], context())
    assert found.source == "ensemble" and found.evidence["llm_share"] == 0.5
    assert found.cost.tokens == 120 and found.latency_ms is not None


def test_the_record_moves_the_share() -> None:
    wrong = said({"candidate": 1, "p": [1, 0, 0, 0, 0, 0, 0, 0]})
    both = ensemble(*[wrong] * 13)
    measured = []
    for number in range(12):
        item = candidate(KERNEL.replace('"num_warps": 8', f'"num_warps": {number + 1}'))
        both.forecast([item], context(tried=measured))
        measured = [*measured, Tried(candidate=item, status=EvaluationStatus.PASSED, latency_ms=0.13)]
    (found,) = both.forecast([candidate()], context(tried=measured))
    assert found.evidence["llm_share"] < 0.3


def test_a_refused_call_leaves_the_learned_forecast() -> None:
    (found,) = ensemble(refuse=True).forecast([candidate()], context())
    assert found.source == "learned" and "not asked" in found.why


def test_names_of_forecasters() -> None:
    assert make_forecaster("auto").name == "learned"
    assert make_forecaster("none").forecast([candidate()], context())[0].abstain
    with pytest.raises(UsageError, match="there are auto, learned"):
        make_forecaster("psychic")
    with pytest.raises(UsageError, match="--model"):
        make_forecaster("llm")


def test_the_roofline_is_wide_and_never_below_its_floor() -> None:
    (found,) = make_forecaster("roofline").forecast([candidate()], context())
    assert found.latency_ms is not None
    assert found.latency_ms.low >= 0.99 * max(found.evidence[key] for key in ("memory_ms", "compute_ms", "launch_ms"))
    assert found.latency_ms.high > 5 * found.latency_ms.low
