"""How the forecasts of a run compare with what was measured afterwards: the only test of a forecaster that counts here."""

from __future__ import annotations

from collections.abc import Sequence

from tilecast.agent.record.fold import CandidateState
from tilecast.sandbox.bins import bin_of
from tilecast.sandbox.schema import Document, EvaluationStatus
from tilecast.tools.forecast.honesty import Outcome
from tilecast.tools.forecast.honesty import honesty as panel_of


class Honesty(Document):
    """Shares are of the ``compared`` candidates: forecast with a speedup, and measured against the same baseline.

    ``skipped`` were never measured and cannot be compared; ``audited`` are the sample measured in spite of the forecast,
    of which ``audited_wins`` would have been the best of the run.
    """

    forecast: int
    abstained: int
    skipped: int
    compared: int
    exact_bin: float | None
    within_one_bin: float | None
    within_interval: float | None
    """Share of measured speedups inside the forecast's 80 % interval."""
    faster_brier: float | None
    """Mean squared error of the chance of being faster than the baseline (0 is perfect, 0.25 is a coin)."""
    valid_brier: float | None
    """The same for the chance of being correct, over everything evaluated."""
    audited: int
    audited_wins: int
    brier: float | None = None
    """Half-Brier over the eight speedup bins, of measured candidates whose forecast showed a latency."""
    ece: float | None = None
    """Expected calibration error of the same, with ten bins of the largest probability."""
    false_skip_rate: float | None = None
    """Share of the audited that would have been skipped and became the fastest."""
    regret: float | None = None
    """Mean log-speedup over the best of its time that an audited candidate brought: what a skip is expected to have cost."""
    gpu_seconds_saved: float | None = None
    """Skipped candidates times the mean device seconds of those measured."""


def honesty(candidates: Sequence[CandidateState]) -> Honesty | None:
    """The comparison, or None if there were no forecasts."""
    told = [c for c in candidates if c.forecast is not None and c.forecast.source != "none"]
    if not told:
        return None
    exact, near, inside, faster = [], [], [], []
    for candidate in told:
        forecast, result = candidate.forecast, candidate.result
        if forecast is None or forecast.speedup is None or result is None or result.speedup is None:
            continue
        actual = result.speedup.ratio
        likeliest = max(range(len(forecast.bins)), key=lambda i: forecast.bins[i].p) if forecast.bins else None
        if likeliest is not None:
            away = abs(likeliest - bin_of(actual))
            exact.append(float(away == 0))
            near.append(float(away <= 1))
        inside.append(float(forecast.speedup.low <= actual <= forecast.speedup.high))
        faster.append((forecast.p_faster - float(actual > 1)) ** 2)
    valid = [
        (c.forecast.p_valid - float(c.result.status is EvaluationStatus.PASSED)) ** 2
        for c in told
        if c.forecast is not None and c.result is not None and c.counted
    ]
    audits = [c for c in told if c.chosen is not None and c.chosen.action == "audit"]
    panel = panel_of(outcomes_of(candidates))
    return Honesty(
        forecast=len(told),
        abstained=sum(1 for c in told if c.forecast is not None and c.forecast.abstain),
        skipped=sum(1 for c in told if c.chosen is not None and c.chosen.action == "skip"),
        compared=len(inside),
        exact_bin=_mean(exact),
        within_one_bin=_mean(near),
        within_interval=_mean(inside),
        faster_brier=_mean(faster),
        valid_brier=_mean(valid),
        audited=len(audits),
        audited_wins=sum(1 for c in audits if c.judged is not None and c.judged.best),
        brier=panel.brier,
        ece=panel.ece,
        false_skip_rate=panel.false_skip_rate,
        regret=panel.regret,
        gpu_seconds_saved=panel.gpu_seconds_saved,
    )


def outcomes_of(candidates: Sequence[CandidateState]) -> list[Outcome]:
    """What was forecast and what came, in the order judged, with the fastest time that stood before each."""
    found: list[Outcome] = []
    fastest: float | None = None
    for candidate in sorted(candidates, key=lambda c: (c.judged is None, c.judged_seq, c.index)):
        result = candidate.result if candidate.timed else None
        ms = result.latency_ms.candidate if result is not None and result.latency_ms is not None else None
        forecast = candidate.forecast
        if forecast is not None and forecast.source != "none" and candidate.chosen is not None:
            paired = ms * result.speedup.ratio if ms is not None and result is not None and result.speedup else None
            found.append(
                Outcome(
                    forecast=forecast,
                    decision=candidate.chosen.action,
                    latency_ms=ms,
                    baseline_ms=paired if paired is not None else forecast.baseline_ms,
                    incumbent_ms=fastest,
                    gpu_seconds=candidate.charged_gpu_s if candidate.counted else None,
                )
            )
        if ms is not None:
            fastest = ms if fastest is None else min(fastest, ms)
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def panel_summary(found: Honesty) -> str:
    """What the panel amounts to, in a sentence or two; where there is nothing to judge by, that."""
    if found.abstained == found.forecast and not found.skipped and not found.audited:
        judged = f"; {found.compared} of them had a figure to compare" if found.compared else ""
        return (
            f"All {found.forecast} forecasts abstained{judged}: nothing was skipped, and nothing was decided by them."
        )
    told = f"{found.forecast} forecasts, {found.abstained} of them abstained; {found.skipped} candidates were skipped on one."
    if not found.compared:
        return f"{told} None of them was measured, so nothing can be said of their quality."
    return f"{told} {found.compared} could be compared with a measurement."


def panel_rows(found: Honesty) -> list[tuple[str, str]]:
    """The panel as names and figures; rows without anything to judge by are left out."""

    def share(value: float | None) -> str | None:
        return None if value is None else f"{value:.0%}"

    def figure(value: float | None) -> str | None:
        return None if value is None else f"{value:.3f}"

    saved = found.gpu_seconds_saved if found.skipped else None
    rows = [
        ("candidates with a forecast", str(found.forecast)),
        ("of them abstained", str(found.abstained)),
        ("of them skipped (never measured)", str(found.skipped)),
        ("compared with a measurement", str(found.compared)),
        ("likeliest speedup bin was right", share(found.exact_bin)),
        ("right or the bin beside it", share(found.within_one_bin)),
        ("measured speedup inside the forecast's 80 % interval", share(found.within_interval)),
        ("Brier score of 'faster than the baseline'", figure(found.faster_brier)),
        ("Brier score of 'correct'", figure(found.valid_brier)),
        ("half-Brier score over the speedup bins", figure(found.brier)),
        ("expected calibration error of the likeliest bin", figure(found.ece)),
        (
            "ruled out but measured as a check",
            f"{found.audited}, of them {found.audited_wins} became best" if found.audited else None,
        ),
        ("false skips, by that check", share(found.false_skip_rate)),
        ("log-speedup that a skip is expected to have cost", figure(found.regret)),
        ("GPU seconds saved by skipping (estimate)", None if saved is None else f"{saved:.1f}"),
    ]
    if found.abstained == found.forecast and not found.skipped and not found.audited and not found.compared:
        return []
    return [(name, value) for name, value in rows if value is not None]
