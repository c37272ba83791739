"""Where a launch's time can go: memory, cache, tensor cores, scalar units, latency, each as least milliseconds.

A roofline with more ceilings than two (Williams et al. 2009; hierarchical: Yang et al. 2020, arXiv 2009.05257). None of these is
a forecast; the learned model sees them, relative to the problem's floor, and learns how they combine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from tilecast.sandbox.hardware import Hardware
from tilecast.tools.forecast.resources import Fit, KernelFigures, fit
from tilecast.tools.forecast.trace.host_op import HostOp
from tilecast.tools.forecast.trace.program import LaunchTrace

L2_OVER_DRAM = 2.2
"""Bandwidth of the L2 cache over that of memory (about 5.5 to 7 TB/s on Hopper; Luo et al. 2024, arXiv 2402.13499)."""

LOAD_LATENCY_US = 0.65
"""One dependent trip to memory on Hopper (same source), in microseconds."""

SFU_SHARE = 1 / 8
"""Special functions a clock over float32 lanes: 16 of 128 a multiprocessor."""

SYNC_US = 0.05
"""A block-wide reduction through shared memory, in microseconds."""

OP_LAUNCH_FACTOR = 2.0
"""A torch operation's dispatch, over a bare kernel launch."""


@dataclass
class Times:
    """Least milliseconds of each resource."""

    dram: float = 0.0
    cache: float = 0.0
    tensor: float = 0.0
    scalar: float = 0.0
    special: float = 0.0
    integer: float = 0.0
    latency: float = 0.0
    in_flight: float = 0.0
    spill: float = 0.0
    launch: float = 0.0

    @property
    def bound(self) -> float:
        """The largest, plus the launch."""
        return (
            max(
                self.dram,
                self.cache,
                self.tensor,
                self.scalar,
                self.special,
                self.integer,
                self.latency,
                self.in_flight,
                self.spill,
            )
            + self.launch
        )

    def add(self, other: Times) -> None:
        """Sum in place."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass
class Placement:
    """How a launch's programs fall on the device."""

    warps: int
    stages: int
    fit: Fit
    waves: float
    """Programs over what is resident at once."""
    utilisation: float
    """Programs over the slots of the waves they take: below 1 by the tail, or by too small a grid."""


def placement(launch: LaunchTrace, figures: KernelFigures, hardware: Hardware) -> Placement:
    """Warps, residency and waves; cuTile's hint stands for the warps it does not show."""
    warps = figures.warps or _number(launch.options.get("num_warps"), 4)
    stages = figures.stages or _number(launch.options.get("num_stages"), 3)
    fitted = fit(figures, hardware, warps)
    hint = launch.options.get("occupancy")
    if isinstance(hint, int) and hint > 0 and figures.registers is None:
        fitted = Fit(hint, min(1.0, hint * warps / hardware.max_warps_per_sm))
    slots = hardware.sms * fitted.blocks
    waves = launch.programs / slots
    return Placement(warps, stages, fitted, waves, waves / max(math.ceil(waves), 1))


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default


def bytes_in_flight(launch: LaunchTrace, place: Placement, hardware: Hardware) -> float:
    """Bytes on their way to one multiprocessor: what an iteration loads, for the stages ahead, of the resident programs."""
    work = launch.work
    inner = max(work.loops, key=lambda loop: loop.trips * loop.load_bytes, default=None)
    stages = inner.stages if inner is not None and inner.stages else place.stages if work.dots else 2
    ahead = max(stages - 1, 1)
    each = inner.load_bytes * ahead if inner is not None and inner.load_bytes > 0 else work.load_bytes
    return each * min(place.fit.blocks, max(launch.programs / hardware.sms, 0.05))


L2_USABLE = 0.7
"""Share of the L2 cache that reused data can count on."""


def read_bytes(size: float, each: float, launch: LaunchTrace, place: Placement, hardware: Hardware) -> float:
    """Bytes that one tensor costs memory: once, and again where what the resident programs hold of it outgrows the L2 cache.

    ``size`` is the tensor's, ``each`` what one program loads of it (bytes).
    """
    total = each * launch.programs
    if total <= size or size <= 0:
        return total
    passes = total / size
    resident = min(launch.programs, hardware.sms * place.fit.blocks)
    held = min(size, resident * each / passes)
    missed = max(0.0, 1 - L2_USABLE * hardware.l2_bytes / held)
    return size + (total - size) * missed


def launch_times(
    launch: LaunchTrace, place: Placement, storages: dict[int, float], hardware: Hardware, spills: int = 0
) -> Times:
    """Least times of one launch from its work a program, times programs.

    ``in_flight`` is Little's law: bandwidth is at most bytes in flight over latency. ``spill`` is the spilled registers'
    traffic, once an innermost iteration.
    """
    work, count = launch.work, launch.programs
    bandwidth = (hardware.measured_bandwidth_gbs or 0.9 * hardware.bandwidth_gbs) * 1e6
    moved = sum(read_bytes(storages.get(s, b * count), b, launch, place, hardware) for s, b in work.by_storage.items())
    moved += sum(min(storages.get(s, b * count), b * count) for s, b in work.stored_storage.items())
    sectors = (work.load_sectors + work.store_sectors) * count
    lanes = hardware.fp32_tflops * 1e12 / 2 / 1e3
    busy = max(min(1.0, count / hardware.sms), 1e-3)
    dtype = {1: "float8", 2: "bfloat16", 4: "tfloat32", 8: "float64"}.get(work.dot_item_bytes, "bfloat16")
    rounds = work.loads / max(1, place.stages - 1 if work.loops else 1)
    serial = rounds * LOAD_LATENCY_US + work.reductions * SYNC_US + LOAD_LATENCY_US
    waiting = max(bytes_in_flight(launch, place, hardware), 1.0) * hardware.sms / (LOAD_LATENCY_US * 1e-3)
    trips = max((loop.trips for loop in work.loops), default=1.0)
    return Times(
        dram=moved / bandwidth,
        in_flight=(work.load_bytes * count) / waiting,
        spill=8.0 * spills * 32 * place.warps * count * trips / (bandwidth * L2_OVER_DRAM),
        cache=sectors / (bandwidth * L2_OVER_DRAM),
        tensor=work.dot_flops * count / (hardware.matrix_tflops(dtype) * 1e9) / busy,
        scalar=(work.float_ops + 2 * work.reduced) * count / lanes / busy
        + work.double_ops * count / (hardware.fp64_tflops * 5e8),
        special=work.special_ops * count / (lanes * SFU_SHARE) / busy,
        integer=work.int_ops * count / (lanes / 2) / busy,
        latency=serial * math.ceil(place.waves) / 1e3,
        launch=hardware.launch_us / 1e3,
    )


def op_times(op: HostOp, hardware: Hardware) -> Times:
    """Least times of one torch operation."""
    bandwidth = (hardware.measured_bandwidth_gbs or 0.9 * hardware.bandwidth_gbs) * 1e6
    peak = hardware.matrix_tflops("tfloat32" if op.dtype == "tfloat32" else op.dtype) * 1e9
    flops = op.flops if op.kind == "library" else 0.0
    scalar = 0.0 if op.kind in ("library", "gather", "fill") else op.flops / (hardware.fp32_tflops * 5e8)
    return Times(
        dram=op.bytes / bandwidth,
        tensor=flops / peak,
        scalar=scalar,
        launch=OP_LAUNCH_FACTOR * hardware.launch_us / 1e3,
    )
