"""The learned forecaster, the default: trees over what a candidate does, and a posterior over what this run has measured.

It looks at source and CONFIG in milliseconds, and at compile-time evidence where the context can give it. It is silent where the
text could not be walked, where the candidate is unlike anything it was trained on, and on GPUs it was not trained on.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilecast.sandbox.hardware import Hardware
from tilecast.sandbox.schema import Cost, Forecast
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import ForecastContext
from tilecast.tools.forecast.dataset import family_key, problem_key
from tilecast.tools.forecast.excess import excess
from tilecast.tools.forecast.features import Described, describe, problem_floor
from tilecast.tools.forecast.model import Model, Weights, load
from tilecast.tools.forecast.posterior import Posterior, condition, covariance, inflation
from tilecast.tools.forecast.predictive import LEVELS, Predictive, abstention, forecast_of
from tilecast.tools.forecast.refusals import refusal
from tilecast.tools.forecast.resources import from_evidence
from tilecast.tools.forecast.selection import STRADDLE
from tilecast.tools.forecast.trace import ProblemTrace, trace_candidate, trace_problem
from tilecast.tools.propose.base import Tried

Floats = npt.NDArray[np.float64]
MOST_MEASURED = 512
"""Measurements of a run that a forecast learns from, the last ones: the posterior's cost grows with the cube of their number."""
DESCRIBED = 4 * MOST_MEASURED
"""Candidates whose features are remembered."""
REFUSED_P_VALID = 0.02
"""Chance that a candidate passes although the compiler refused it for the target (another compiler version may not)."""


@dataclass(frozen=True)
class _Seen:
    """One candidate described: its features, family, and why the compiler refused it, or will (empty if it does not)."""

    described: Described
    family: str
    refused: str
    informed: bool


class LearnedForecaster:
    """Trees and posterior (``--forecaster learned``)."""

    name = "learned"

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._problems: dict[str, ProblemTrace | None] = {}
        self._seen: OrderedDict[tuple[str, str, str], _Seen] = OrderedDict()

    @classmethod
    def load(cls, weights: str | Path | None = None) -> LearnedForecaster:
        """With the shipped weights, or those of a file.

        Raises:
            UsageError: if the file is missing or no weights.
        """
        return cls(load(weights))

    def forecast(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Forecast]:
        """One forecast a candidate, in order; measured ones in ``context.tried`` move them all."""
        started = time.perf_counter()
        predicted = self.predict(candidates, context)
        cost = Cost(seconds=(time.perf_counter() - started) / max(len(candidates), 1))
        baseline = (context.baseline_name, context.baseline_ms)
        if isinstance(predicted, str):
            return [abstention(c, predicted, "learned", baseline, cost) for c in candidates]
        return [self._document(c, p, context, cost) for c, p in zip(candidates, predicted, strict=True)]

    def predict(self, candidates: Sequence[Candidate], context: ForecastContext) -> list[Prediction] | str:
        """Distributions for an ensemble or a document; a text if nothing can be said for this problem or GPU."""
        hardware, problem = context.hardware, self._problem(context)
        if hardware is None:
            return "the GPU is not in the catalogue"
        if problem is None:
            return "the reference uses something that the shape evaluator does not know"
        model = self._weights.for_problem(problem_key(context.problem.source))
        if model is None:
            return "the weights have seen this problem and hold no model fitted without it"
        seen = [self._describe(c, context, problem, hardware) for c in candidates]
        rows = _rows(seen)
        centres, spreads, valid = model.centres(rows), model.spreads(rows), model.validity(rows)
        posterior, factor = self._posterior(model, seen, context, problem, hardware)
        shift = posterior.shift[: len(seen)] * spreads
        deviation = posterior.deviation[: len(seen)] * spreads * factor
        novelty, floor = model.novelty(rows), problem_floor(problem, hardware).ms
        median = float(np.interp(0.5, LEVELS, model.shape))
        trained = hardware.key in self._weights.card.get("gpus", [])
        found, learned_from = [], len(_measured(context))
        for i, item in enumerate(seen):
            doubt = "" if trained else f"not trained on {hardware.key}; "
            doubt += "" if item.described.covered else f"{item.described.reason}; "
            if novelty[i] > max(2 * model.novelty_limit, 1.0):
                doubt += f"unlike the training data (novelty {novelty[i]:.2f}, limit {max(2 * model.novelty_limit, 1.0):.2f}); "
            narrowed = deviation[i] / spreads[i] if spreads[i] else 1.0
            centre = centres[i] + shift[i] + spreads[i] * median * (1 - narrowed)
            found.append(
                Prediction(
                    predictive=model.predictive(float(centre), float(deviation[i]), floor),
                    p_valid=REFUSED_P_VALID if item.refused else float(valid[i]),
                    doubt=doubt.rstrip("; "),
                    refused=item.refused,
                    detail={
                        "tier": "evidence" if item.informed else "source",
                        "floor_ms": floor,
                        "bound_ms": item.described.bound_ms,
                        "novelty": round(float(novelty[i]), 3),
                        "spread": round(float(deviation[i]), 4),
                        "prior_spread": round(float(spreads[i]), 4),
                        "shift": round(float(shift[i]), 4),
                        "learned_from": learned_from,
                    },
                )
            )
        return found

    def _problem(self, context: ForecastContext) -> ProblemTrace | None:
        key = f"{context.problem.sha256}/{context.workload}"
        if key not in self._problems:
            self._problems[key] = trace_problem(context.problem.source, context.workload)
        return self._problems[key]

    def _describe(
        self, candidate: Candidate, context: ForecastContext, problem: ProblemTrace, hardware: Hardware
    ) -> _Seen:
        evidence = context.evidence(candidate) if context.evidence is not None else None
        key = (
            f"{context.problem.sha256}/{context.workload}",
            candidate.sha256,
            str((evidence or {}).get("source_sha256", "")),
        )
        if key not in self._seen:
            figures = from_evidence(evidence) if evidence else {}
            trace = trace_candidate(candidate.source, problem)
            described = describe(trace, problem, hardware, figures)
            refused = refusal(trace)
            if evidence and any(figure.failed for figure in figures.values()):
                refused = refused or f"the compiler refuses it for {hardware.key}"
            self._seen[key] = _Seen(described, family_key(candidate.source), refused, bool(figures))
            while len(self._seen) > DESCRIBED:
                self._seen.popitem(last=False)
        self._seen.move_to_end(key)
        return self._seen[key]

    def _posterior(
        self, model: Model, seen: Sequence[_Seen], context: ForecastContext, problem: ProblemTrace, hardware: Hardware
    ) -> tuple[Posterior, float]:
        """Posterior over ``seen`` followed by what was measured, and the factor by which intervals proved too narrow or wide."""
        tried = _measured(context)
        measured = [self._describe(t.candidate, context, problem, hardware) for t in tried]
        everyone = [*seen, *measured]
        rows = _rows(everyone)
        families = np.array([s.family for s in everyone])
        prior = covariance(model.similarity(rows, rows), families[:, None] == families[None, :], model.correlation)
        floor = problem_floor(problem, hardware).ms
        own = rows[len(seen) :]
        targets = excess([math.log((t.latency_ms or 1.0) / floor) for t in tried])
        residuals = (targets - model.centres(own)) / model.spreads(own) if tried else np.zeros(0)
        index = np.arange(len(seen), len(everyone))
        return condition(prior, model.correlation, index, residuals), inflation(
            prior, model.correlation, index, residuals
        )

    def _document(self, candidate: Candidate, found: Prediction, context: ForecastContext, cost: Cost) -> Forecast:
        target = context.incumbent_ms or context.baseline_ms
        chance = 0.5 if target is None else found.predictive.cdf(math.log(target))
        straddles = STRADDLE[0] < chance < STRADDLE[1]
        why = (
            found.refused
            or found.doubt
            or (
                f"chance of beating {target:.4g} ms is {chance:.2f}"
                + (": the interval straddles it" if straddles else "")
                if target is not None
                else "nothing is measured yet to compare with"
            )
        )
        return forecast_of(
            candidate,
            found.predictive,
            (context.baseline_name, context.baseline_ms),
            "learned",
            p_valid=found.p_valid,
            abstain=not found.refused and (bool(found.doubt) or straddles or target is None),
            why=why,
            cost=cost,
            evidence=dict(found.detail),
        )


@dataclass(frozen=True)
class Prediction:
    """A distribution with what is needed to judge it. ``doubt`` is why to be silent, empty if there is no reason; ``refused``
    why it will not compile.
    """

    predictive: Predictive
    p_valid: float
    doubt: str
    refused: str
    detail: Mapping[str, Any]


def _measured(context: ForecastContext) -> list[Tried]:
    """The last measurements of the run, oldest first, as many as a forecast learns from."""
    timed = (t for t in reversed(context.tried) if t.latency_ms is not None and t.latency_ms > 0)
    return list(islice(timed, MOST_MEASURED))[::-1]


def _rows(seen: Sequence[_Seen]) -> Floats:
    return np.array([s.described.values for s in seen], dtype=np.float32).astype(np.float64)
