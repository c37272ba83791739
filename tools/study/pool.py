"""A recorded problem as a pool to search in: speeds, features, the model that never saw it, recorded forecasts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tilecast.sandbox.corpus import RecordedProblem
from tilecast.tools.forecast.dataset import EvidenceTable, ProblemExamples, problem_examples
from tilecast.tools.forecast.model import Model, Weights
from tilecast.tools.forecast.ordering import Beliefs
from tilecast.tools.forecast.posterior import covariance

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pool:
    """Variants of one problem. ``speeds`` is 1/ms with failures as 0; the other arrays follow the same order."""

    name: str
    key: str
    speeds: Floats
    baseline_ms: float | None
    floor_ms: float
    rows: Floats
    """Features (n, d)."""
    bound_ms: Floats
    """Physical lower estimate of each, from its text: what the roofline policy goes by."""
    families: npt.NDArray[np.int64]
    seconds: Floats
    """Device seconds that measuring each one took."""
    model: Model | None
    llm: tuple[tuple[float, ...] | None, ...]
    """Recorded language-model forecasts, where there is one."""

    def __len__(self) -> int:
        return len(self.speeds)

    @property
    def log_ms(self) -> Floats:
        """ln(ms); infinite for failures."""
        with np.errstate(divide="ignore"):
            result: Floats = -np.log(self.speeds)
        return result

    @cached_property
    def beliefs(self) -> Beliefs:
        """What the model that never saw the problem believes of all variants together.

        Raises:
            ValueError: if there is no such model.
        """
        model, rows = self.model, self.rows
        if model is None:
            raise ValueError(f"{self.name}: there is no model that has not seen this problem")
        same = self.families[:, None] == self.families[None, :]
        prior = covariance(model.similarity(rows, rows), same, model.correlation)
        return Beliefs(model.centres(rows), model.spreads(rows), model.validity(rows), prior, model)

    def take(self, indices: Sequence[int]) -> Pool:
        """The pool of some variants only."""
        at = np.asarray(indices)
        arrays = {k: getattr(self, k)[at] for k in ("speeds", "rows", "bound_ms", "families", "seconds")}
        return replace(self, **arrays, llm=tuple(self.llm[i] for i in indices))


def forecast_pool(pool: Pool) -> Pool | None:
    """The variants for which a language model's forecast is recorded; None if there are none that passed."""
    chosen = [i for i, p in enumerate(pool.llm) if p is not None]
    part = pool.take(chosen) if chosen else None
    return part if part is not None and part.speeds.max() > 0 else None


def pool_of(record: RecordedProblem, examples: ProblemExamples, weights: Weights | None) -> Pool | None:
    """The pool of a recorded problem; None if nothing in it passed."""
    speeds = np.array([1 / r.ms if r.status == "PASSED" and r.ms else 0.0 for r in examples.rows])
    if not len(speeds) or speeds.max() <= 0:
        return None
    families = {f: i for i, f in enumerate(dict.fromkeys(e.family for e in examples.examples))}
    stated = {f.candidate: tuple(f.p) for f in record.llm_forecasts if len(f.p) == 8}
    bound = examples.names.index("t_bound")
    return Pool(
        name=record.name,
        key=examples.key,
        speeds=speeds,
        baseline_ms=examples.baseline_ms,
        floor_ms=examples.floor_ms,
        rows=np.array([e.informed for e in examples.examples], dtype=np.float32).astype(np.float64),
        bound_ms=np.array([math.exp(e.plain[bound]) * examples.floor_ms for e in examples.examples]),
        families=np.array([families[e.family] for e in examples.examples]),
        seconds=np.array(
            [
                r.seconds if r.seconds is not None else (r.first_call_s or 0.0) + 72e-3 * (r.ms or 0.0)
                for r in examples.rows
            ]
        ),
        model=weights.for_problem(examples.key) if weights is not None else None,
        llm=tuple(stated.get(r.candidate) if not r.config else None for r in examples.rows),
    )


def load_pools(
    records: Sequence[RecordedProblem], weights: Weights | None, evidence: EvidenceTable | None = None
) -> tuple[list[Pool], Mapping[str, str]]:
    """Pools of all problems that can be searched, and why the others cannot."""
    pools, left_out = [], {}
    for record in records:
        examples = problem_examples(record, evidence)
        pool = pool_of(record, examples, weights) if examples is not None else None
        if pool is not None:
            pools.append(pool)
        elif examples is None:
            left_out[record.name] = "its GPU is not in the catalogue, or its reference could not be walked"
        else:
            left_out[record.name] = "no variant passed"
    return pools, left_out
