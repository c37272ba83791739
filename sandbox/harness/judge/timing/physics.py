"""What a device can do at most, and whether a time is possible on it.

The least time is the roofline's (S. Williams, A. Waterman and D. Patterson, CACM 52(4), 2009, doi 10.1145/1498765.1498785):
compulsory bytes over bandwidth, operations over peak. A limit that may reject uses the larger of 1.1 times the peak measured
on this very device and the data sheet, and counts only traffic that cannot be avoided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

Bound = Literal["memory", "compute", "launch"]

HEADROOM = 1.1
"""A measured peak is not the highest possible one."""
LAUNCH_BOUND_FACTOR = 4.0
"""A workload whose least time is below this many launches is launch-bound."""
LEAST_SHARE = 0.25
"""Of the reference's arithmetic, to be refused as impossible: an honest kernel may need less than the reference counts. A mask, or
a symmetric or triangular operand, halves a product, and two of these quarter it; an algorithm with fewer products (Winograd's
3 x 3 convolution: 2.25 times) lies in between."""
REVIEW_SPEEDUP = 10.0


@dataclass(frozen=True)
class Work:
    """What a workload has to do.

    Attributes:
        read_bytes: inputs and parameters that any correct program must read, as far as the reference shows.
        written_bytes: outputs that are not views of inputs.
        flops: arithmetic of the reference's matrix-like operators.
        dtype: of the widest matrix-like input, for instance ``float32``.
    """

    read_bytes: int
    written_bytes: int
    flops: int
    dtype: str

    @property
    def bytes(self) -> int:
        """Compulsory traffic."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class Peaks:
    """Of one device: GB/s (10^9), TFLOP/s, bytes, milliseconds. ``cold`` is False where caches cannot be emptied surely."""

    bandwidth_gbs: float
    tflops: float
    l2_bytes: int
    launch_ms: float


@dataclass(frozen=True)
class Floor:
    """Least milliseconds by each limit."""

    memory_ms: float
    compute_ms: float
    launch_ms: float

    @property
    def bound(self) -> Bound:
        """Which limit binds."""
        if max(self.memory_ms, self.compute_ms) < LAUNCH_BOUND_FACTOR * self.launch_ms:
            return "launch"
        return "memory" if self.memory_ms >= self.compute_ms else "compute"

    @property
    def ms(self) -> float:
        """The largest of them."""
        return max(self.memory_ms, self.compute_ms, self.launch_ms)


def sheet_tflops(hardware: dict[str, Any] | None, dtype: str) -> float:
    """Data-sheet peak of matrix products on inputs of ``dtype``; 0 without a sheet.

    float32 gets the TF32 rate: products split into several narrower ones reach float32's accuracy on matrix units.
    """
    if hardware is None:
        return 0.0
    if dtype in ("float16", "bfloat16"):
        key = "fp16_tflops"
    elif dtype.startswith(("float8", "int8", "uint8")):
        key = "fp8_tflops"
    else:
        key = {"float64": "fp64_tflops"}.get(dtype, "tf32_tflops")
    return float(hardware.get(key) or 0.0)


def peaks_of(measured: dict[str, Any] | None, hardware: dict[str, Any] | None, dtype: str) -> Peaks | None:
    """The larger of 1.1 times what was measured and the data sheet; None if neither is there.

    Args:
        measured: ``{"bandwidth_gbs", "tflops": {dtype: value}, "launch_ms", "l2_bytes"}`` as measured on this device.
        hardware: data-sheet figures (fields of the hardware catalogue).
    """
    measured = measured or {}
    bandwidth = max(
        HEADROOM * float(measured.get("bandwidth_gbs") or 0), float((hardware or {}).get("bandwidth_gbs") or 0)
    )
    rates = {str(k): float(v) for k, v in (measured.get("tflops") or {}).items()}
    # A matrix rate that was not measured for this dtype is bounded by the fastest one that was.
    rate = rates.get(dtype, 0.0)
    if dtype == "float32":
        rate = max(rate, rates.get("tfloat32", 0.0))
    compute = max(HEADROOM * rate, sheet_tflops(hardware, dtype)) or HEADROOM * max(rates.values(), default=0.0)
    if bandwidth <= 0:
        return None
    l2_bytes = int(measured.get("l2_bytes") or (hardware or {}).get("l2_bytes") or 0)
    launch_ms = float(measured.get("launch_ms") or float((hardware or {}).get("launch_us") or 0) / 1e3)
    return Peaks(bandwidth, compute, l2_bytes, launch_ms)


def floor_of(work: Work, peaks: Peaks) -> Floor:
    """Least time of the workload on the device, by each limit."""
    return Floor(
        memory_ms=work.bytes / (peaks.bandwidth_gbs * 1e9) * 1e3,
        compute_ms=work.flops / (peaks.tflops * 1e12) * 1e3 if peaks.tflops > 0 else 0.0,
        launch_ms=peaks.launch_ms,
    )


def unavoidable_memory_ms(work: Work, peaks: Peaks) -> float:
    """Least time for traffic that must cross to memory while a cold call runs: writes may stay behind in L2."""
    crossing = work.read_bytes + max(0, work.written_bytes - peaks.l2_bytes)
    return crossing / (peaks.bandwidth_gbs * 1e9) * 1e3


@dataclass(frozen=True)
class Plausibility:
    """What physics says of a time: ``impossible`` names the broken limit, ``review`` what a human should look at."""

    impossible: str = ""
    review: str = ""


def judge_time(cold_ms: float, work: Work, peaks: Peaks, *, speedup: float, confirmed: bool) -> Plausibility:
    """Hold a cold-cache time against the device.

    The memory limit rejects. The compute limit counts the reference's arithmetic, and a candidate may honestly need less of
    it (a mask, a symmetric or structured operand, an algorithm with fewer products): it rejects only a time below
    ``LEAST_SHARE`` of the limit that the judge's own clock could not confirm, and else asks for a review.

    Args:
        confirmed: whether the judge's clock bounds this time from below within its tolerance.
    """
    if not (math.isfinite(cold_ms) and cold_ms > 0):
        return Plausibility(impossible=f"a time of {cold_ms} ms is not one")
    memory_ms = unavoidable_memory_ms(work, peaks)
    if cold_ms < memory_ms:
        return Plausibility(
            impossible=f"faster than light: {cold_ms:.4g} ms, but moving {work.read_bytes} bytes in and "
            f"{work.written_bytes} out takes at least {memory_ms:.4g} ms at {peaks.bandwidth_gbs:.0f} GB/s (memory limit)"
        )
    notes = []
    compute_ms = floor_of(work, peaks).compute_ms
    if cold_ms < compute_ms:
        text = (
            f"{cold_ms:.4g} ms, but the reference's {work.flops:.3g} operations in {work.dtype} take at least "
            f"{compute_ms:.4g} ms at {peaks.tflops:.0f} TFLOP/s (compute limit)"
        )
        if not confirmed and cold_ms < LEAST_SHARE * compute_ms:
            return Plausibility(impossible=f"faster than light, and below {LEAST_SHARE:g} of the limit: {text}")
        notes.append("does less arithmetic than the reference: " + text)
    if speedup > REVIEW_SPEEDUP:
        notes.append(f"speedup {speedup:.1f} is above {REVIEW_SPEEDUP:.0f}: have a human look at it")
    return Plausibility(review="; ".join(notes))
