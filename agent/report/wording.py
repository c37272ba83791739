"""How figures are written, everywhere alike: with their unit, their interval, and the word ``recorded`` where they are."""

from __future__ import annotations

from tilecast.agent.record.fold import CandidateState
from tilecast.sandbox.base import BaselineTimes
from tilecast.sandbox.schema import Forecast, Interval, LatencyPair, LedgerDocument, Measurement, Meter

METER_NAMES = {"evals": "evals", "gpu_seconds": "device s", "tokens": "tokens", "usd": "USD", "minutes": "minutes"}
MOST_INCIDENTS, LOG_LINES = 20, 5
"""Of what went wrong on the way, and of what an evaluator printed last."""
_DECIMALS = {"evals": 0, "gpu_seconds": 1, "tokens": 0, "usd": 4, "minutes": 1}


def milliseconds(ms: float) -> str:
    """Four significant digits and the unit, microseconds below 0.1 ms."""
    return f"{ms * 1e3:.4g} µs" if ms < 0.1 else f"{ms:.4g} ms"


def ratio(value: float) -> str:
    """A speedup."""
    return f"{value:.3g}x" if value < 10 else f"{value:.1f}x"


def interval(found: Interval) -> str:
    """A speedup with its interval."""
    return f"{ratio(found.ratio)} [{found.low:.3g}, {found.high:.3g}]"


def not_faster(verdict: str | None) -> str:
    """What is said of a best that is no improvement: an undecided one may be faster."""
    return f"not {'shown to be ' if verdict == 'undecided' else ''}faster than the baseline"


def apart(speedup: Interval, latency_ms: LatencyPair) -> str:
    """A word where the quotient of the two times lies outside of the ratio's interval; empty elsewhere."""
    if speedup.low <= latency_ms.baseline / latency_ms.candidate <= speedup.high:
        return ""
    return "the ratio is of calls made by turns, the times are medians over all calls: other work came in between"


def mark(recorded: bool) -> str:
    """The word that a recorded figure carries."""
    return " (recorded)" if recorded else ""


def baselines_mark(found: BaselineTimes) -> str:
    """What times of baselines carry that were not taken for this run. When they were taken, the judge does not tell."""
    kept = f" (kept from an earlier run; each candidate is timed against {found.fastest} anew)"
    return kept if found.kept else mark(found.recorded)


def measured(result: Measurement) -> str:
    """Verdict, speedup and time of a measurement; its status where it has no time."""
    if result.speedup is None or result.latency_ms is None:
        return str(result.status)
    time = milliseconds(result.latency_ms.candidate)
    return f"{result.verdict} {interval(result.speedup)} {time}{mark(result.recorded)}"


def notes(result: Measurement) -> list[str]:
    """What the judge remarks on how it timed."""
    found = result.details.get("notes")
    return [str(note) for note in found] if isinstance(found, list) else []


def lead(result: Measurement | None) -> str:
    """The word for the fastest so far: plain ``best`` only if it is faster than the baseline."""
    verdict = result.verdict if result is not None else None
    than = {
        "slower": ", slower than baseline",
        "same": ", as fast as baseline",
        "undecided": ", not told apart from baseline",
    }
    return f"best so far{than[verdict]}" if verdict in than else "best"


def outcome(candidate: CandidateState) -> str:
    """What became of a candidate, in a few words."""
    if candidate.result is not None:
        return measured(candidate.result)
    if candidate.lost is not None:
        return "no result"
    action = candidate.chosen.action if candidate.chosen else None
    return {"skip": "skipped", "drop": "dropped"}.get(action or "", "pending")


def title(candidate: CandidateState, with_note: bool = True) -> str:
    """Number, name and what was changed (``with_note``)."""
    proposed = candidate.proposed
    if proposed is None:
        return f"{candidate.index}"
    name = proposed.name or "(none)"
    return f"{candidate.index} {name}" + (f": {proposed.note}" if proposed.note and with_note else "")


def forecast_text(found: Forecast) -> str:
    """A forecast, marked as one."""
    if found.speedup is None:
        return f"forecast: abstains ({found.why})"
    low, high = found.speedup.low, found.speedup.high
    text = f"forecast {ratio(found.speedup.median)} [{low:.3g}, {high:.3g}], chance of faster {found.p_faster:.0%}"
    return f"{text}, abstains" if found.abstain else text


def meter(name: str, value: Meter) -> str:
    """Spent of limit, for instance ``evals 12 of 40``."""
    digits = _DECIMALS[name]
    spent = "unknown" if value.spent is None else f"{value.spent:.{digits}f}"
    limit = "" if value.limit is None else f" of {value.limit:.10g}"
    return f"{METER_NAMES[name]} {spent}{limit}"


def ledger(document: LedgerDocument) -> str:
    """All meters in one line; those that are neither used nor limited are left out."""
    parts = []
    for name in METER_NAMES:
        value: Meter = getattr(document, name)
        if value.limit is not None or value.spent is None or value.spent > 0:
            parts.append(meter(name, value))
    return ", ".join(parts)
