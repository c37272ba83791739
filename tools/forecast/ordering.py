"""In which order to measure a set of candidates, given what the model says of them jointly.

Both rules maximise what a measurement is expected to add to the best speed found. Before anything is measured the set is built
greedily over joint draws of all latencies (a submodular maximum, so greedy is within 1 - 1/e of the best set; Nemhauser et al.
1978): a second variant of a source that may be slow as a whole adds less than one of another source. As measurements come in, the
next one is the largest expected gain under the posterior, with a preference for what is fast by its centre.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tilecast.tools.forecast.excess import excess, log_ratio
from tilecast.tools.forecast.model import Model
from tilecast.tools.forecast.posterior import condition
from tilecast.tools.forecast.predictive import LEVELS

Floats = npt.NDArray[np.float64]
DRAWS = 512
TIE = 1e-3
"""Weight of the centre once nothing is expected to be gained any more."""

_GRID = np.linspace(-4, 4, 161)
_CDF = np.array([NormalDist().cdf(float(z)) for z in _GRID])


def shaped(normal: Floats, shape: tuple[float, ...]) -> Floats:
    """Standard normal draws turned into draws of the residual's own shape, through their probabilities."""
    result: Floats = np.interp(np.interp(normal, _GRID, _CDF), LEVELS, shape)
    return result


@dataclass(frozen=True)
class Beliefs:
    """What is believed of a set of candidates before any of them is measured."""

    centre: Floats
    """Excess over the floor on the learned scale."""
    spread: Floats
    valid: Floats
    prior: Floats
    """Covariance of standardised residuals, without noise (n, n)."""
    model: Model


def draw(beliefs: Beliefs, seed: int) -> Floats:
    """Joint draws of ln(ms / floor): (n, DRAWS)."""
    count = len(beliefs.centre)
    matrix = beliefs.prior + (beliefs.model.correlation.noise + 1e-6) * np.eye(count)
    normal = np.linalg.cholesky(matrix) @ np.random.default_rng(seed).standard_normal((count, DRAWS))
    return log_ratio(beliefs.centre[:, None] + beliefs.spread[:, None] * shaped(normal, beliefs.model.shape))


def batch_order(beliefs: Beliefs, seed: int = 0) -> list[int]:
    """All candidates, each next one adding most to the expected best speed of those before it."""
    times = draw(beliefs, seed)
    speeds = np.exp(-(times - times.min(axis=0))) * beliefs.valid[:, None]
    found, left, order = np.zeros(DRAWS), np.ones(len(speeds), dtype=bool), []
    while left.any():
        worth = np.where(left, np.maximum(speeds, found).mean(axis=1) - TIE * beliefs.centre, -np.inf)
        best = int(np.argmax(worth))
        order.append(best)
        left[best] = False
        found = np.maximum(found, speeds[best])
    return order


def adaptive_order(
    beliefs: Beliefs,
    measure: Callable[[int], float | None],
    seed: int = 0,
    limit: int | None = None,
    favourites: Sequence[int] = (),
) -> list[int]:
    """Measure one at a time and learn from each. ``measure`` gives ln(ms / floor), or None if the candidate fails.

    ``favourites`` come right after the first choice: what others who were asked hold to be the fastest.
    """
    count = len(beliefs.centre)
    left = np.ones(count, dtype=bool)
    order: list[int] = []
    seen: list[int] = []
    residuals: list[float] = []
    best = np.inf
    first = batch_order(beliefs, seed)[0]
    while left.any() and (limit is None or len(order) < limit):
        waiting = [index for index in favourites if left[index]]
        if not order:
            chosen = first
        elif waiting:
            chosen = waiting[0]
        else:
            chosen = next_choice(beliefs, np.array(seen, dtype=np.int64), np.array(residuals), left, best)
        left[chosen] = False
        order.append(chosen)
        value = measure(chosen)
        if value is not None:
            seen.append(chosen)
            residuals.append(float((excess(value) - beliefs.centre[chosen]) / beliefs.spread[chosen]))
            best = min(best, value)
    return order


def next_choice(
    beliefs: Beliefs, seen: npt.NDArray[np.int64], residuals: Floats, left: npt.NDArray[np.bool_], best: float
) -> int:
    """The candidate with the largest expected gain over ``best`` (ln(ms / floor) of the fastest so far)."""
    posterior = condition(beliefs.prior, beliefs.model.correlation, seen, residuals)
    centre = beliefs.centre + beliefs.spread * posterior.shift
    deviation = beliefs.spread * posterior.deviation
    if np.isinf(best):
        return int(np.argmax(np.where(left, -centre, -np.inf)))
    shape = np.asarray(beliefs.model.shape)
    outcomes = log_ratio(centre[:, None] + deviation[:, None] * shape[None, :])
    gain = beliefs.valid * np.maximum(0.0, np.exp(np.maximum(best - outcomes, 0.0)) - 1).mean(axis=1)
    return int(np.argmax(np.where(left, gain - TIE * centre, -np.inf)))


def ranked(values: Sequence[float]) -> list[int]:
    """Indices by rising value; ties keep their order."""
    return sorted(range(len(values)), key=lambda i: values[i])
