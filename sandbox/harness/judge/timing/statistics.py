"""From paired blocks of times to a ratio, an interval and a verdict, looked at several times without fooling oneself.

Everything here is pure: no clock, no process, no device. The unit of analysis is a block A B B A (two *legs* of the
candidate around, or between, two of the baseline; each leg several calls), reduced to one number, the log-ratio of the
baseline's time to the candidate's. A drift that is linear over a block cancels in it, and a minority of slow calls does not
move the legs' medians.

The estimate is the midmean (25 % trimmed mean: J. W. Tukey, *Exploratory Data Analysis*, 1977) of the blocks' log-ratios,
its interval the percentile bootstrap over blocks (B. Efron and R. Tibshirani, *An Introduction to the Bootstrap*, 1993,
ch. 13), widened to the distribution-free Wilcoxon signed-rank interval (M. Hollander, D. Wolfe and E. Chicken,
*Nonparametric Statistical Methods*, 2014, section 3.3) where that is wider, which it is for few blocks.

Repeated looks: the two-sided error is spent over the looks (K. K. G. Lan and D. L. DeMets, Biometrika 70, 1983, 659-663) with
the power family ``alpha * t**rho`` (K. Kim and D. L. DeMets, Biometrika 74, 1987, 149-154), and each look is held to its own
increment alone. The increments add up to ``alpha``, so by the union bound the intervals of all looks hold together with
probability ``1 - alpha`` (repeated confidence intervals: C. Jennison and B. W. Turnbull, J. R. Statist. Soc. B 51, 1989,
305-361), whatever the joint distribution of the looks; that costs some samples against an exact boundary, and assumes less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["faster", "slower", "same", "undecided"]
Floats = NDArray[np.float64]

TRIM = 0.25
"""Share of blocks cut from each end before averaging."""
WIDEST = math.log(1e6)
"""An interval without bounds (a single block) is shown as a factor of a million."""


@dataclass(frozen=True)
class Design:
    """How a comparison is judged and when it may stop.

    Attributes:
        alpha: probability of a wrong "faster" or "slower" over the whole comparison, both sides together.
        margin: half-width of "same", as a fraction.
        systematic: what may differ between two processes that run the same kernel (placement in memory), as a fraction; the
            interval is widened by it on both sides, since more samples of the same two processes cannot shrink it.
        systematic_ms: the same in milliseconds, on top: the shorter a kernel, the more placement and the clock's steps count.
        first_look_blocks: blocks before the first look.
        early_look_blocks, clear, early_width, early_alpha: after so many blocks a candidate that is slower by more than
            ``clear`` (a fraction, the whole interval) is done with if the interval is no wider than ``early_width``: who
            lost needs no better figure. This look spends ``early_alpha`` of the error, and decides nothing else.
        growth: factor between looks.
        max_blocks: blocks after which it stops whatever the budget.
        rho: exponent of the spending function.
        resamples: bootstrap resamples a look.
        seed: of the bootstrap.
        leg_quantile: which quantile of a leg's calls stands for it: the median, or a lower one where interruptions, which
            only ever lengthen a call, hit most legs (a CPU that others use too).
    """

    alpha: float = 0.03
    margin: float = 0.01
    systematic: float = 0.002
    systematic_ms: float = 0.0
    first_look_blocks: int = 10
    early_look_blocks: int = 5
    clear: float = 0.1
    early_width: float = 0.05
    early_alpha: float = 0.002
    growth: float = 1.5
    max_blocks: int = 400
    rho: float = 0.3
    resamples: int = 4000
    seed: int = 20240917
    leg_quantile: float = 0.5


@dataclass(frozen=True)
class Estimate:
    """Ratio of baseline to candidate (above 1: the candidate is faster), its interval, and the verdict they give."""

    ratio: float
    low: float
    high: float
    verdict: Verdict
    blocks: int
    alpha_spent: float
    final: bool


def leg_ms(samples: Floats, quantile: float = 0.5) -> float:
    """One number for the calls of a leg, by default their median, in the samples' unit.

    Raises:
        ValueError: for no samples, or one that is not a positive number.
    """
    if samples.size == 0:
        raise ValueError("a leg without samples has no time")
    if not bool(np.all(np.isfinite(samples)) and np.all(samples > 0)):
        raise ValueError(f"times must be positive numbers, got {float(samples.min())} to {float(samples.max())}")
    return float(np.quantile(samples, quantile))


def block_log_ratio(candidate_ms: tuple[float, ...], baseline_ms: tuple[float, ...]) -> float:
    """Log of baseline over candidate, each the geometric mean of its legs in the block."""
    mean_candidate = sum(map(math.log, candidate_ms)) / len(candidate_ms)
    mean_baseline = sum(map(math.log, baseline_ms)) / len(baseline_ms)
    return mean_baseline - mean_candidate


def midmean(values: Floats) -> Floats:
    """25 % trimmed mean along the last axis (the median for fewer than four values)."""
    n = values.shape[-1]
    cut = min(int(TRIM * n), (n - 1) // 2)
    if n < 4:
        return np.asarray(np.median(values, axis=-1))
    ordered = np.partition(values, (cut, n - cut - 1), axis=-1)
    return np.asarray(ordered[..., cut : n - cut].mean(axis=-1))


def bootstrap_interval(values: Floats, alpha: float, resamples: int, seed: int) -> tuple[float, float]:
    """Percentile bootstrap interval of the midmean with two-sided error ``alpha``; seeded, so the same data give the same."""
    generator = np.random.default_rng([seed, values.size])
    draws = generator.integers(0, values.size, size=(resamples, values.size))
    estimates = midmean(values[draws])
    low, high = np.quantile(estimates, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


@lru_cache(maxsize=512)
def signed_rank_tail(n: int, alpha: float) -> int:
    """Largest ``k`` such that P(T+ < k) <= alpha / 2 for the Wilcoxon signed-rank statistic of ``n`` values; 0 if there is none.

    Exact distribution by the generating function prod(1 + x^i) / 2^n up to 60 values, the normal approximation above.
    """
    if n > 60:
        from statistics import NormalDist

        mean, sd = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, int(mean + NormalDist().inv_cdf(alpha / 2) * sd))
    weights = np.zeros(n * (n + 1) // 2 + 1)
    weights[0] = 1.0
    for rank in range(1, n + 1):
        weights[rank:] = (weights[rank:] + weights[:-rank]) / 2
        weights[:rank] /= 2
    return int(np.searchsorted(np.cumsum(weights), alpha / 2, side="right"))


def signed_rank_interval(values: Floats, alpha: float) -> tuple[float, float]:
    """Distribution-free interval for the centre of symmetry; infinite where so few values cannot give that confidence."""
    n = values.size
    k = signed_rank_tail(n, alpha)
    if k == 0:
        return -math.inf, math.inf
    rows, columns = np.triu_indices(n)
    walsh = np.sort((values[rows] + values[columns]) / 2)
    return float(walsh[k - 1]), float(walsh[walsh.size - k])


@lru_cache(maxsize=256)
def student_quantile(df: int, p: float) -> float:
    """Quantile of Student's t by bisection of its distribution function (numerical integration of the density)."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def distribution(t: float) -> float:
        # Substituting x = sqrt(df) tan(u) makes the integrand smooth on a finite range.
        u = np.linspace(0.0, math.atan(t / math.sqrt(df)), 2001)
        return 0.5 + scale * math.sqrt(df) * float(np.trapezoid(np.cos(u) ** (df - 1), u))

    low, high = 0.0, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if distribution(middle) < p else (low, middle)
    return (low + high) / 2


def student_interval(values: Floats, alpha: float) -> tuple[float, float]:
    """Student's interval of the mean: for so few blocks that ranks alone can decide nothing."""
    if values.size < 2:
        return -math.inf, math.inf
    half = student_quantile(values.size - 1, 1 - alpha / 2) * float(values.std(ddof=1)) / math.sqrt(values.size)
    centre = float(values.mean())
    return centre - half, centre + half


def interval(values: Floats, alpha: float, design: Design) -> tuple[float, float]:
    """Hull of the bootstrap interval and of the exact one for few blocks, widened by the systematic part; log units."""
    exact = signed_rank_interval(values, alpha)
    if math.isinf(exact[0]):
        exact = student_interval(values, alpha)
    boot = bootstrap_interval(values, alpha, design.resamples, design.seed)
    wider = math.log1p(design.systematic)
    return min(exact[0], boot[0]) - wider, max(exact[1], boot[1]) + wider


def classify(low: float, high: float, margin: float) -> Verdict:
    """Verdict of an interval of the ratio; "same" comes first: an interval inside the margin says that no difference matters."""
    if 1 - margin <= low and high <= 1 + margin:
        return "same"
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "undecided"


@dataclass
class Comparison:
    """A sequential comparison: add blocks, look when :meth:`due`, stop when a look decides or the budget is spent."""

    design: Design = field(default_factory=Design)
    log_ratios: list[float] = field(default_factory=list)
    spent: float = 0.0
    next_look: int = 0
    estimate: Estimate | None = None
    shortest_ms: float = math.inf

    def __post_init__(self) -> None:
        self.next_look = self.next_look or self.design.first_look_blocks

    def add(self, candidate_ms: tuple[float, ...], baseline_ms: tuple[float, ...]) -> None:
        """One more block: the legs' times of either side, in the same unit."""
        self.log_ratios.append(block_log_ratio(candidate_ms, baseline_ms))
        self.shortest_ms = min(self.shortest_ms, *candidate_ms, *baseline_ms)

    @property
    def due(self) -> bool:
        """Whether enough blocks came since the last look for another."""
        return len(self.log_ratios) >= self.next_look

    @property
    def early_due(self) -> bool:
        """Whether it is time to see if the candidate is a clear loser."""
        early = self.design.early_look_blocks
        return len(self.log_ratios) == early < self.design.first_look_blocks and self.spent == 0.0

    def look_early(self, *, widen: float = 0.0) -> None:
        """End the comparison if the candidate is slower by more than ``clear``; else go on as if nobody had looked, but
        for the error spent.
        """
        low, high = self._interval(self.design.early_alpha, widen)
        self.spent += self.design.early_alpha
        if high < math.log1p(-self.design.clear) and high - low < math.log1p(self.design.early_width):
            self._conclude(low, high, final=False)

    @property
    def decided(self) -> bool:
        """Whether the last look decided, or none may follow."""
        return self.estimate is not None and (self.estimate.verdict != "undecided" or self.estimate.final)

    def look(self, information: float, *, final: bool = False, widen: float = 0.0) -> Estimate:
        """Estimate from all blocks so far at this look's share of the error.

        Args:
            information: share of the budget (blocks or seconds, whichever ends first) that is used, 0 to 1.
            final: no look will follow: what is left of the error is spent.
            widen: what else may shift the ratio, as a fraction; the interval grows by it on both sides.

        Raises:
            ValueError: with no block at all.
        """
        if not self.log_ratios:
            raise ValueError("no block was measured: there is nothing to look at")
        design = self.design
        final = final or len(self.log_ratios) >= design.max_blocks
        cumulative = design.alpha * (1.0 if final else min(max(information, 0.0), 1.0) ** design.rho)
        # A look that came early relative to the plan still needs a level that is not zero.
        alpha = max(cumulative - self.spent, 0.0)
        if alpha <= 1e-6:
            low, high = -math.inf, math.inf
        else:
            low, high = self._interval(alpha, widen)
            self.spent += alpha
        self.next_look = max(len(self.log_ratios) + 1, math.ceil(len(self.log_ratios) * design.growth))
        return self._conclude(low, high, final=final or self._hopeless(low, high, widen))

    def _interval(self, alpha: float, widen: float) -> tuple[float, float]:
        wider = self._fixed(widen)
        low, high = interval(np.asarray(self.log_ratios), alpha, self.design)
        return low - wider, high + wider

    def _fixed(self, widen: float) -> float:
        """What is added on either side, in log units, beside the design's fraction."""
        return math.log1p(widen) + math.log1p(self.design.systematic_ms / self.shortest_ms)

    def _hopeless(self, low: float, high: float, widen: float) -> bool:
        """Whether no number of samples can decide: without what is fixed the interval lies inside of what is fixed."""
        fixed = self._fixed(widen) + math.log1p(self.design.systematic)
        return fixed >= math.log1p(self.design.margin) and -fixed < low + fixed and high - fixed < fixed

    def _conclude(self, low: float, high: float, *, final: bool) -> Estimate:
        bounds = (math.exp(max(low, -WIDEST)), math.exp(min(high, WIDEST)))
        verdict = classify(*bounds, self.design.margin)
        values = np.asarray(self.log_ratios)
        self.estimate = Estimate(math.exp(float(midmean(values))), *bounds, verdict, values.size, self.spent, final)
        return self.estimate
