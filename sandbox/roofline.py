"""Roofline arithmetic: the least time a workload can take on a device (Williams et al. 2009, doi 10.1145/1498765.1498785)."""

from __future__ import annotations

from tilecast.sandbox.hardware import Hardware
from tilecast.sandbox.problem import WorkloadFacts
from tilecast.sandbox.schema import Bound, Document, SpeedOfLight

LAUNCH_BOUND_FACTOR = 4.0
"""A kernel whose least time is below this many launch overheads is called launch-bound."""


class Floor(Document):
    """Least milliseconds by each limit; the larger of memory and compute binds."""

    memory_ms: float
    compute_ms: float
    launch_ms: float

    @property
    def ms(self) -> float:
        """The largest of the three."""
        return max(self.memory_ms, self.compute_ms, self.launch_ms)

    @property
    def bound(self) -> Bound:
        """Which limit binds."""
        work = max(self.memory_ms, self.compute_ms)
        if work < LAUNCH_BOUND_FACTOR * self.launch_ms:
            return "launch"
        return "memory" if self.memory_ms >= self.compute_ms else "compute"


def floor_of(workload: WorkloadFacts, hardware: Hardware) -> Floor:
    """Least time: compulsory bytes over peak bandwidth, flops over the matrix peak of the widest input dtype."""
    floats = [t.dtype for t in workload.inputs if "float" in t.dtype] or ["float32"]
    peak = max(hardware.matrix_tflops(dtype) for dtype in floats)
    bandwidth = hardware.bandwidth_gbs
    return Floor(
        memory_ms=workload.min_bytes / (bandwidth * 1e9) * 1e3,
        compute_ms=workload.flops / (peak * 1e12) * 1e3,
        launch_ms=hardware.launch_us / 1e3,
    )


def speed_of_light(workload: WorkloadFacts, hardware: Hardware, measured_ms: float) -> SpeedOfLight:
    """Fraction of the least possible time, and what binds."""
    floor = floor_of(workload, hardware)
    return SpeedOfLight(fraction=floor.ms / measured_ms, bound=floor.bound)
