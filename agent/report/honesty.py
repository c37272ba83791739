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
