"""How a comparison is sampled: warm up until stable, blocks A B B A of legs, looks, and an end.

This module knows neither processes nor devices: a :class:`LegSource` runs legs, real workers or a simulated clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from tilecast.sandbox.harness.judge.timing.statistics import Comparison, Design, Estimate, Floats, leg_ms

Side = Literal["candidate", "baseline"]
SETTLED_LEG_CALLS = 5
"""From this many calls on, a leg makes one more before those that count."""


@dataclass(frozen=True)
class Leg:
    """One uninterrupted run of calls of one side.

    Attributes:
        calls_ms: the time of each call, as the innermost clock gave it.
        judge_ms: the judge's own clock around the whole leg, hand-over included.
        discard: why the leg must not count (a throttled clock, another process on the device), empty if it may.
    """

    side: Side
    calls_ms: Floats
    judge_ms: float
    discard: str = ""


class NothingUsable(Exception):
    """Every block of a comparison was discarded; the text says why."""


class LegSource(Protocol):
    """Runs legs on demand; raises its own errors, which pass through."""

    def leg(self, side: Side, calls: int) -> Leg: ...

    def now_s(self) -> float:
        """The judge's monotonic clock, in seconds."""
        ...

    def settled(self) -> None:
        """The warm-up is over: what was noted of clocks so far is not to be used."""
        ...

    def interference(self) -> float:
        """By how much, as a fraction, others on the device may have shifted the ratio so far (0 where nobody did)."""
        ...


@dataclass(frozen=True)
class SamplingPlan:
    """Sizes of the sampling; times in seconds.

    Attributes:
        max_seconds: device time of the whole comparison, warm-up included.
        leg_s: how long a leg should last: long against the hand-over, short against drift.
        min_calls, max_calls: calls a leg.
        warm_up_s: longest warm-up.
        stable_within: two successive legs of either side must agree so far (fraction) for the warm-up to end.
    """

    max_seconds: float = 20.0
    leg_s: float = 0.004
    min_calls: int = 5
    max_calls: int = 24
    warm_up_s: float = 0.5
    stable_within: float = 0.02


@dataclass
class Sampled:
    """What a comparison measured."""

    estimate: Estimate
    candidate_ms: float
    baseline_ms: float
    samples: int
    seconds: float
    calls_per_leg: int
    legs: list[Leg] = field(default_factory=list)
    discarded: dict[str, int] = field(default_factory=dict)
    stable: bool = True


def calls_per_leg(call_s: float, plan: SamplingPlan, first_look_blocks: int) -> int:
    """Calls in a leg: enough to fill ``leg_s``, never so many that the budget ends before the first look.

    ``call_s`` is the wall time of a call with all that goes with it, the slower side's.
    """
    wanted = math.ceil(plan.leg_s / call_s)
    affordable = int(plan.max_seconds * 0.8 / (first_look_blocks * 4 * call_s))
    return max(1, min(max(wanted, plan.min_calls), plan.max_calls, affordable))


class Sampler:
    """Drives one comparison over a source of legs."""

    def __init__(
        self, source: LegSource, plan: SamplingPlan, design: Design, *, on_block: Callable[[], None] | None = None
    ) -> None:
        self.source, self.plan, self.comparison = source, plan, Comparison(design)
        self.on_block = on_block
        self.legs: list[Leg] = []
        self.discarded: dict[str, int] = {}
        self.started_s = source.now_s()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the comparison began."""
        return self.source.now_s() - self.started_s

    def warm_up(self) -> tuple[float, bool]:
        """Legs of both sides until successive ones agree, or ``warm_up_s`` is over.

        Returns:
            Wall seconds of one call of the slower side, and whether the times became stable.
        """
        calls, last = 1, {"candidate": math.inf, "baseline": math.inf}
        while True:
            walls, agree = [], True
            for side in ("candidate", "baseline"):
                leg = self.source.leg(side, calls)
                walls.append(leg.judge_ms / 1e3 / calls)
                median = leg_ms(leg.calls_ms, self.comparison.design.leg_quantile)
                agree &= abs(median / last[side] - 1) <= self.plan.stable_within
                last[side] = median
            if agree or self.elapsed_s > min(self.plan.warm_up_s, self.plan.max_seconds * 0.2):
                return max(walls), agree
            calls = calls_per_leg(max(walls), self.plan, self.comparison.design.first_look_blocks)

    def block(self, calls: int, first: Side) -> None:
        """One block: a leg, a double leg of the other side, a leg. It counts only if no leg of it is discarded.

        The first call of a leg finds caches as the other process left them: it is made and checked, but not counted, where
        legs are long enough to afford it.
        """
        settle = 1 if calls >= SETTLED_LEG_CALLS else 0
        second: Side = "baseline" if first == "candidate" else "candidate"
        wanted = ((first, calls), (second, 2 * calls), (first, calls))
        legs = [self._settled(self.source.leg(side, count + settle), settle) for side, count in wanted]
        reasons = [leg.discard for leg in legs if leg.discard]
        if reasons:
            self.discarded[reasons[0]] = self.discarded.get(reasons[0], 0) + sum(leg.calls_ms.size for leg in legs)
            return
        self.legs.extend(legs)
        halves = (legs[1].calls_ms[:calls], legs[1].calls_ms[calls:])
        share = self.comparison.design.leg_quantile
        outer = (leg_ms(legs[0].calls_ms, share), leg_ms(legs[2].calls_ms, share))
        inner = (leg_ms(halves[0], share), leg_ms(halves[1], share))
        self.comparison.add(*((outer, inner) if first == "candidate" else (inner, outer)))

    @staticmethod
    def _settled(leg: Leg, settle: int) -> Leg:
        return replace(leg, calls_ms=leg.calls_ms[settle:])

    def run(self) -> Sampled:
        """Warm up, then blocks until a look decides, the budget is spent, or ``max_blocks`` is reached.

        Raises:
            NothingUsable: if every block was discarded.
        """
        call_s, stable = self.warm_up()
        self.source.settled()
        design = self.comparison.design
        calls = calls_per_leg(call_s, self.plan, design.first_look_blocks)
        tried = 0
        while not self.comparison.decided:
            before = self.elapsed_s
            self.block(calls, "candidate" if tried % 2 == 0 else "baseline")
            tried += 1
            if self.on_block is not None:
                self.on_block()
            block_s = self.elapsed_s - before
            done = len(self.comparison.log_ratios)
            over = self.elapsed_s + block_s > self.plan.max_seconds or tried >= 2 * design.max_blocks
            if self.comparison.early_due and not over:
                self.comparison.look_early(widen=self.source.interference())
            elif (self.comparison.due or over) and done:
                used = max(done / design.max_blocks, self.elapsed_s / self.plan.max_seconds)
                self.comparison.look(used, final=over, widen=self.source.interference())
            if over:
                break
        return self._result(calls, stable)

    def _result(self, calls: int, stable: bool) -> Sampled:
        estimate = self.comparison.estimate
        if estimate is None:
            raise NothingUsable(f"no block of the comparison could be used: discarded {self.discarded}")
        times = {
            side: np.concatenate([leg.calls_ms for leg in self.legs if leg.side == side])
            for side in ("candidate", "baseline")
        }
        return Sampled(
            estimate=estimate,
            candidate_ms=float(np.median(times["candidate"])),
            baseline_ms=float(np.median(times["baseline"])),
            samples=int(sum(t.size for t in times.values())),
            seconds=self.elapsed_s,
            calls_per_leg=calls,
            legs=self.legs,
            discarded=self.discarded,
            stable=stable,
        )
