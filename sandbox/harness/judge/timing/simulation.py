"""A simulated device for studies of the sampling and its statistics: a virtual clock with drift, noise and spikes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilecast.sandbox.harness.judge.timing.sampling import Leg, Side


@dataclass
class SimulatedDevice:
    """A source of legs whose truth is known.

    Attributes:
        baseline_ms: true time of a baseline call at time zero.
        ratio: true baseline time over candidate time.
        noise: relative standard deviation of a call (log-normal).
        drift_per_s: relative growth of every time a second.
        spike_share, spike_low, spike_high: that share of calls takes a factor in this range longer.
        call_overhead_ms, leg_overhead_ms: wall time around each call (flush, fingerprint, check) and each leg (hand-over).
        seed: of all of it.
    """

    baseline_ms: float
    ratio: float = 1.0
    noise: float = 0.01
    drift_per_s: float = 0.0
    spike_share: float = 0.0
    spike_low: float = 1.5
    spike_high: float = 3.0
    call_overhead_ms: float = 0.15
    leg_overhead_ms: float = 0.15
    seed: int = 0
    clock_s: float = 0.0
    generator: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)

    def now_s(self) -> float:
        """The virtual clock."""
        return self.clock_s

    def settled(self) -> None:
        """Nothing was noted."""

    def interference(self) -> float:
        """Nobody else uses a simulated device; spikes are part of it."""
        return 0.0

    def leg(self, side: Side, calls: int) -> Leg:
        """Draw the times of a leg and advance the clock by them."""
        true_ms = self.baseline_ms / (self.ratio if side == "candidate" else 1.0)
        times = true_ms * np.exp(self.generator.normal(0.0, self.noise, calls))
        spiked = self.generator.random(calls) < self.spike_share
        times[spiked] *= self.generator.uniform(self.spike_low, self.spike_high, int(spiked.sum()))
        starts_s = self.clock_s + np.arange(calls) * (true_ms + self.call_overhead_ms) / 1e3
        times *= 1 + self.drift_per_s * starts_s
        judge_ms = float(times.sum()) + calls * self.call_overhead_ms + self.leg_overhead_ms
        self.clock_s += judge_ms / 1e3
        return Leg(side, times, judge_ms)
