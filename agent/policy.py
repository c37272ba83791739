"""Every decision of the loop as a pure function of the run's state: what next, whether to measure, keep or drop, when to stop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilecast.agent.record.events import Action, Chosen, Judged
from tilecast.agent.record.fold import CandidateState, RunState
from tilecast.sandbox.schema import EvaluationStatus, Forecast, Measurement, StoppedBy
from tilecast.tools.forecast.selection import BudgetLeft, SelectionRules, chance_of_beating, decide, skip_threshold

BARREN_LIMIT_PAID = 30
BARREN_LIMIT_FREE = 10_000
"""Proposals in a row that may lead to no evaluation before the source counts as exhausted."""
ENVIRONMENT_ERRORS = 3
"""Evaluations in a row that the machine, not the candidate, may fail before the run is given up."""

UNTIMED = 3
"""Correct candidates that may go without a time, where none has one, before that counts as this machine's inability."""

Phase = str
"""``propose``, ``forecast``, ``verify``, ``decide``: where a candidate stands."""


@dataclass(frozen=True)
class Rules:
    """When to stop besides a budget: a speedup that is enough, evaluations without a better one, fruitless proposals."""

    target_speedup: float | None = None
    patience: int | None = None
    barren_limit: int = BARREN_LIMIT_FREE
    confirm: bool = True
    """Examine a candidate that is about to take the lead a second time, in a fresh process."""


@dataclass(frozen=True)
class Stop:
    """The run ends here."""

    by: StoppedBy
    why: str


def stop_of(state: RunState, rules: Rules, interrupted: bool) -> Stop | None:
    """Whether the run is over for another reason than a budget."""
    if interrupted:
        return Stop("interrupted", "interrupted by the user")
    best = state.best_state()
    ratio = best.result.speedup.ratio if best and best.result and best.result.speedup else None
    if rules.target_speedup is not None and ratio is not None and ratio >= rules.target_speedup:
        return Stop("target", f"{ratio:.3g}x reaches the target of {rules.target_speedup:.3g}x")
    if rules.patience is not None and state.since_best >= rules.patience:
        return Stop("patience", f"{state.since_best} evaluations in a row were no better (--patience {rules.patience})")
    if state.exhausted and not state.unanswered:
        return Stop("exhausted", "the proposer has nothing more to propose")
    if state.barren >= rules.barren_limit:
        return Stop("exhausted", f"{state.barren} proposals in a row led to no evaluation")
    return None


def may_ask(state: RunState, waiting: int, pool_size: int, evals_left: float) -> bool:
    """Whether to ask for one more proposal: a free place, and an evaluation left for it.

    Args:
        state: the run.
        waiting: proposals asked for or answered, and not taken up yet.
        pool_size: most of them at once.
        evals_left: evaluations that fit in the budget.
    """
    return not state.exhausted and waiting < min(pool_size, evals_left)


def expected_seconds(estimate_s: float, evaluated: int, evaluated_s: float) -> float:
    """Device seconds that the next evaluation is expected to take: the estimate counts as one more observation."""
    return (estimate_s + evaluated_s) / (1 + evaluated)


def resume_at(state: RunState, evaluated_now: Collection[int] = ()) -> tuple[Phase, int | None]:
    """Where a run goes on: at the first candidate that is not finished nor being evaluated, else with the next proposal."""
    pending = state.unfinished_but(evaluated_now)
    if pending is None:
        return "propose", None
    if pending.result is not None or (pending.lost is not None and not pending.lost.again):
        return "decide", pending.index
    if pending.chosen is None:
        return "forecast", pending.index
    return ("verify" if pending.chosen.action in ("measure", "audit") else "decide"), pending.index


def screen(state: RunState, candidate: CandidateState) -> Chosen | None:
    """Drop what needs no forecast: no candidate at all, or one that was dealt with before. None if it is a new one."""
    proposed = candidate.proposed
    assert proposed is not None
    if proposed.source_sha256 is None:
        return _chosen(candidate, "drop", f"no candidate: {proposed.reason or 'the proposer gave no reason'}")
    first = state.by_canonical.get(proposed.canonical or "", candidate.index)
    if first != candidate.index:
        return _chosen(candidate, "drop", f"the same as candidate {first}")
    return None


def choose(
    candidate: CandidateState, forecast: Forecast | None, incumbent: float | None, left: BudgetLeft, seed: int
) -> Chosen:
    """Skip, measure or audit a new candidate, by its forecast and what is left of the budget (a scarce one skips more).

    ``incumbent`` is the best time so far in milliseconds. Without a forecast, or where the forecaster abstains, it is measured.
    """
    if forecast is None:
        return _chosen(candidate, "measure", "no forecast")
    action = decide(forecast, incumbent, left, seed)
    if action == "measure":
        return _chosen(candidate, action, _why_measured(forecast, incumbent, left))
    if action == "audit":
        return _chosen(
            candidate, action, f"forecast to lose, measured all the same to check the forecaster: {forecast.why}"
        )
    return _chosen(candidate, action, f"forecast to lose: {forecast.why}")


def _why_measured(forecast: Forecast, incumbent: float | None, left: BudgetLeft) -> str:
    if forecast.abstain:
        return f"the forecaster abstains: {forecast.why}"
    rules = SelectionRules()
    if incumbent is None or forecast.latency_ms is None:
        return forecast.why
    # What decides is read from the interval, whose sides are taken for halves of a normal; the forecaster knows its tails.
    chance, threshold = chance_of_beating(forecast, incumbent, rules), skip_threshold(left, rules)
    return f"{forecast.why}; {chance:.2g} by its interval and the margin, skipped below {threshold:g}"


def machine_failure(state: RunState) -> str | None:
    """Why this machine cannot go on with the run, from what it answered so far; None if it can."""
    health = state.health
    if health.failed_in_a_row >= ENVIRONMENT_ERRORS and health.last is not None:
        return f"{ENVIRONMENT_ERRORS} evaluations in a row failed by the machine: {health.last.reason}"
    if health.passed >= UNTIMED and not health.timed and health.last_passed is not None:
        return f"{health.passed} candidates were correct and none could be timed here: {_rejection(health.last_passed)}"
    return None


def is_finalist(state: RunState, result: Measurement) -> bool:
    """Whether a measurement would take the lead and is faster than the baseline: the ones that are worth a second look."""
    if result.status is not EvaluationStatus.PASSED or result.speedup is None or result.verdict != "faster":
        return False
    best = state.best_state()
    leader = best.result.speedup if best is not None and best.result is not None else None
    return leader is None or result.speedup.ratio > leader.ratio


def judge(state: RunState, candidate: CandidateState) -> Judged:
    """Keep or drop a candidate whose way is at its end, and whether it is the best of the run."""
    result, chosen = candidate.result, candidate.chosen
    if result is None:
        why = candidate.lost.why if candidate.lost else (chosen.why if chosen else "never evaluated")
        return Judged(index=candidate.index, keep=False, best=False, why=why)
    if not candidate.timed:
        return Judged(index=candidate.index, keep=False, best=False, why=_rejection(result))
    return _rank(state, candidate, result)


def _rank(state: RunState, candidate: CandidateState, result: Measurement) -> Judged:
    best = state.best_state()
    assert result.speedup is not None
    ratio = result.speedup.ratio
    if best is None or best.result is None or best.result.speedup is None:
        why = f"first one measured: {ratio:.3g}x the baseline"
        return Judged(index=candidate.index, keep=True, best=True, why=why)
    leader = best.result.speedup
    if ratio > leader.ratio:
        why = f"fastest so far: {ratio:.3g}x the baseline, before it {leader.ratio:.3g}x (candidate {best.index})"
        return Judged(index=candidate.index, keep=True, best=True, why=why)
    if result.speedup.high >= leader.low:
        why = f"not told apart from the best, {leader.ratio:.3g}x (candidate {best.index})"
        return Judged(index=candidate.index, keep=True, best=False, why=why)
    why = f"slower than the best, {leader.ratio:.3g}x (candidate {best.index})"
    return Judged(index=candidate.index, keep=False, best=False, why=why)


def _rejection(result: Measurement) -> str:
    if result.status is EvaluationStatus.PASSED:
        return "; ".join(["correct, but not timed", *map(str, result.details.get("notes", []))])
    return f"{result.status}: {result.reason}" if result.reason else str(result.status)


def _chosen(candidate: CandidateState, action: Action, why: str) -> Chosen:
    return Chosen(index=candidate.index, action=action, why=why)
