"""What an interval, a status or a forecast amounts to: pure functions, no opinion without evidence."""

from __future__ import annotations

import math

from tilecast.agent.ci.schema import ForecastNote, KernelReport, Ratio, Verdict
from tilecast.sandbox.schema import EvaluationStatus, Forecast

WRONG = frozenset(
    {
        EvaluationStatus.INCORRECT_SHAPE,
        EvaluationStatus.INCORRECT_DTYPE,
        EvaluationStatus.INCORRECT_NUMERICAL,
        EvaluationStatus.REWARD_HACK,
    }
)
"""Head's answers are wrong, whatever base's were."""
BROKEN = frozenset(
    {
        EvaluationStatus.COMPILE_ERROR,
        EvaluationStatus.RUNTIME_ERROR,
        EvaluationStatus.TIMEOUT,
        EvaluationStatus.OUT_OF_MEMORY,
    }
)
"""Head does not run: the change's doing only if base does."""


def of_interval(interval: Ratio, threshold: float) -> Verdict:
    """The side on which the whole interval lies beyond the threshold; ``same`` if it lies within; else undecided.

    The threshold is on the ratio of times in either direction, so that a change and its revert are judged alike.
    """
    if interval.high <= 1 / (1 + threshold):
        return "slower"
    if interval.low >= 1 + threshold:
        return "faster"
    if interval.low > 1 / (1 + threshold) and interval.high < 1 + threshold:
        return "same"
    return "undecided"


def agreed(first: Ratio, second: Ratio) -> Ratio:
    """Two measurements of one thing as one that covers both intervals."""
    return Ratio(
        ratio=math.sqrt(first.ratio * second.ratio),
        low=min(first.low, second.low),
        high=max(first.high, second.high),
    )


def of_status(head: EvaluationStatus, base: EvaluationStatus | None) -> Verdict | None:
    """``incorrect`` where head's status is this change's doing or a wrong answer; ``not_compared`` where it says nothing.

    None for a head that passed.
    """
    if head is EvaluationStatus.PASSED:
        return None
    if head in WRONG:
        return "incorrect"
    if head in BROKEN and (base is EvaluationStatus.PASSED or base is None):
        return "incorrect"
    return "not_compared"


def of_forecast(note: ForecastNote, threshold: float) -> Verdict:
    """As of a measured interval, but never where the forecaster abstains."""
    if note.abstains or note.speedup is None:
        return "undecided"
    return of_interval(note.speedup, threshold)


def note_of(forecast: Forecast, target: str) -> ForecastNote:
    """A forecaster's document of head against base, cut to what a reader needs."""
    speedup = forecast.speedup
    ratio = None
    if speedup is not None and 0 < speedup.low <= speedup.high < 1e9:
        ratio = Ratio(ratio=speedup.median, low=speedup.low, high=speedup.high)
    return ForecastNote(
        speedup=ratio,
        p_faster=forecast.p_faster,
        abstains=forecast.abstain or ratio is None,
        target=target,
        why=forecast.why[:300],
    )


def is_reported(verdict: Verdict) -> bool:
    """Whether a verdict is worth a word to a reviewer."""
    return verdict in ("slower", "faster", "incorrect")


def fails(kernels: list[KernelReport], fail_on: str) -> bool:
    """Whether the gate closes. Forecasts close no gate: nothing was measured."""
    known = [kernel for kernel in kernels if kernel.basis in ("measured", "recorded")]
    wrong = any(kernel.verdict == "incorrect" for kernel in known)
    slower = any(kernel.verdict == "slower" for kernel in known)
    return {"never": False, "incorrect": wrong, "regression": wrong or slower}[fail_on]
