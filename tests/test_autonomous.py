"""``--strategy agent``: a scripted model with tools drives the engine; rules, ledger and record are the engine's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Reply, tool_call
from loop_parts import KERNEL, WRONG, WatchedReplay, make_request, making, variant

from tilecast.agent.assembly import Parts, assemble
from tilecast.agent.autonomous import ROUNDS, AgentProposer
from tilecast.agent.budget import Limits
from tilecast.agent.engine import Engine
from tilecast.agent.report.build import build_report
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import OptimizeResult
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import Forecaster
from tilecast.tools.forecast.roofline import RooflineForecaster
from tilecast.tools.model.client import OpenAIChatModel
from tilecast.tools.model.settings import ModelSettings


def submit(candidate: Candidate, change: str = "") -> Reply:
    return Reply(tool_calls=[tool_call("submit", {"source": candidate.source, "change": change})])


def call(tool: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=[tool_call(tool, arguments)])


def run(server: FakeOpenAI, evals: int, forecaster: Forecaster | None = None) -> tuple[OptimizeResult, Engine]:
    model = OpenAIChatModel(ModelSettings(name="fake", base_url=server.url), "k")
    proposer = AgentProposer(model, forecaster)
    engine = Engine(make_request(KERNEL, Limits(evals=evals)), make=making(proposer))
    return engine.run(), engine


def test_drafts_are_forecast_submitted_and_measured_until_the_budget_is_spent() -> None:
    replies = [
        call("forecast", source=variant(128, 2).source),
        submit(variant(128, 2), "wider"),
        submit(WRONG, "another way"),
        call("read_candidate", name="triton_001"),
        submit(variant(256, 2), "wider still"),
    ]
    with FakeOpenAI(replies) as server:
        result, engine = run(server, 4, RooflineForecaster())
    assert result.stopped_by == "evals" and result.ledger.evals.spent == 4
    assert result.best is not None and result.best.latency_ms.candidate == 0.5 and result.improved
    assert result.ledger.tokens.spent
    tools = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
    assert tools == ["forecast", "read_candidate", "submit", "give_up"]
    assert "not a measurement" in server.bodies[1]["messages"][-1]["content"]
    assert "INCORRECT_NUMERICAL" in server.bodies[3]["messages"][1]["content"]
    assert "class ModelNew" in server.bodies[4]["messages"][-1]["content"]
    assert engine._log is not None
    report = build_report(engine._log)
    assert [c.note for c in report.candidates[1:]] == ["wider", "another way", "wider still"]


def test_loops_broken_calls_and_giving_up() -> None:
    def script(body: dict[str, Any], number: int) -> Reply | str:
        if number < ROUNDS:
            return call("read_candidate", name="nobody")
        return [
            call("fly"),
            submit(variant(256, 2)),
            "no call, no code",
            "again nothing",
            call("give_up", why="nothing left"),
        ][number - ROUNDS]

    with FakeOpenAI(script) as server:
        result, engine = run(server, 10)
    assert len(server.requests) == ROUNDS + 5 and result.stopped_by == "exhausted"
    assert engine._log is not None
    reasons = [c.why for c in build_report(engine._log).candidates]
    assert "12 questions" in reasons[1] and "second attempt" in reasons[3] and "nothing left" in reasons[4]
    assert result.best is not None and result.best.latency_ms.candidate == 0.5


def test_what_the_forecaster_rules_out_is_not_measured() -> None:
    from tilecast.sandbox.schema import Forecast, Range

    class Sure:
        """Confident that everything but the start is slow."""

        name = "sure"

        def forecast(self, candidates: Any, context: Any) -> list[Forecast]:
            return [
                Forecast(
                    latency_ms=Range(median=50, low=49, high=51),
                    baseline="eager",
                    baseline_ms=1.0,
                    bins=[],
                    speedup=Range(median=0.02, low=0.019, high=0.021),
                    p_faster=0.0,
                    p_valid=1.0,
                    abstain=False,
                    why="surely slow",
                    source="learned",
                )
                for _ in candidates
            ]

    sandbox = WatchedReplay()
    points = [variant(b, w, s) for b in (64, 128) for w in (1, 2, 4) for s in (2, 3, 4)]
    with FakeOpenAI([*(submit(point) for point in points), call("give_up", why="done")]) as server:
        model = OpenAIChatModel(ModelSettings(name="fake", base_url=server.url), "k")
        make = making(AgentProposer(model, Sure()), sandbox)

        def sure(request: Any, known: Any) -> Parts:
            return replace(make(request, known), forecaster=Sure())

        result = Engine(make_request(KERNEL, Limits(evals=40)), make=sure).run()
    assert result.candidates.skipped_by_forecast >= 12
    audited = len(points) - result.candidates.skipped_by_forecast
    assert len(sandbox.sent) == 1 + audited and audited <= 6


def test_it_needs_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="language model with tools"):
        assemble(make_request(KERNEL, model="builtin", strategy="agent"), None)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    parts = assemble(make_request(KERNEL, model="gpt-5", strategy="agent"), None)
    assert parts.in_flight == 1 and parts.proposer.proposer.name == "agent gpt-5"
    assert "agent" in json.dumps(make_request(KERNEL, strategy="agent").recorded_settings("gpt-5"))
