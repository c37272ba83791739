"""The feature vector of a candidate on a problem: ratios to the problem's floor, shapes of tiles, access patterns, residency.

No name, comment or literal text enters: everything comes from :mod:`tilecast.tools.forecast.trace` and from compile-time figures.
Missing values are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilecast.sandbox.hardware import Hardware
from tilecast.tools.forecast.physics import Placement, Times, bytes_in_flight, launch_times, op_times, placement
from tilecast.tools.forecast.resources import MIX, KernelFigures
from tilecast.tools.forecast.trace import ProblemTrace, Trace
from tilecast.tools.forecast.trace.program import LaunchTrace

Vector = npt.NDArray[np.float64]
NAN = math.nan
EPSILON_MS = 1e-6


def _log(value: float, floor: float = 1e-9) -> float:
    return math.log(max(value, floor))


@dataclass(frozen=True)
class Floor:
    """Least milliseconds of a problem, by memory and by arithmetic, on one device."""

    memory_ms: float
    compute_ms: float
    ms: float


def problem_floor(problem: ProblemTrace, hardware: Hardware) -> Floor:
    """The problem's roofline, with the bandwidth that was measured where it was, and one launch."""
    bandwidth = (hardware.measured_bandwidth_gbs or 0.9 * hardware.bandwidth_gbs) * 1e6
    memory = problem.min_bytes / bandwidth
    compute = problem.flops / (hardware.matrix_tflops(problem.dtype) * 1e9)
    return Floor(memory, compute, max(memory, compute, hardware.launch_us / 1e3))


@dataclass
class Described:
    """A candidate as the model sees it."""

    names: tuple[str, ...]
    values: Vector
    bound_ms: float
    """Sum over launches of the largest least time: a physical lower estimate."""
    covered: bool
    """Whether the text could be walked to the end."""
    reason: str = ""


def describe(
    trace: Trace,
    problem: ProblemTrace,
    hardware: Hardware,
    figures: Mapping[str, KernelFigures] | None = None,
) -> Described:
    """Features of one candidate; ``figures`` are compile-time facts by kernel name (tier 2), or None (tier 1)."""
    return describe_launches(trace, problem_floor(problem, hardware), hardware, figures)


def describe_launches(
    trace: Trace, floor: Floor, hardware: Hardware, figures: Mapping[str, KernelFigures] | None = None
) -> Described:
    """Features of launches and operations against a floor."""
    known = figures or {}
    total, host, bound = Times(), Times(), 0.0
    best: tuple[float, LaunchTrace | None, Placement | None, KernelFigures] = (-1.0, None, None, KernelFigures())
    for launch in trace.launches:
        own = known.get(launch.kernel, KernelFigures())
        place = placement(launch, own, hardware)
        times = launch_times(launch, place, trace.storages, hardware, own.spills or 0)
        total.add(times)
        bound += times.bound
        if times.bound > best[0]:
            best = (times.bound, launch, place, own)
    for op in trace.ops:
        times = op_times(op, hardware)
        host.add(times)
        bound += times.bound
    row: dict[str, float] = {}
    row |= _totals(trace, total, host, bound, floor)
    row |= _launch(*best[1:], hardware)
    row |= {
        "floor_log_ms": _log(floor.ms),
        "floor_compute_share": _log((floor.compute_ms + EPSILON_MS) / (floor.memory_ms + EPSILON_MS)),
    }
    names = tuple(sorted(row))
    return Described(names, np.array([row[n] for n in names]), max(bound, EPSILON_MS), trace.complete, trace.reason)


def _totals(trace: Trace, total: Times, host: Times, bound: float, floor: Floor) -> dict[str, float]:
    """Sums over all launches and operations, in logs relative to the floor."""

    def ratio(ms: float) -> float:
        return _log(ms / floor.ms, 1e-3)

    kinds = [op.kind for op in trace.ops]
    languages = {la.language for la in trace.launches}
    merged = Times()
    merged.add(total)
    merged.add(host)
    return {
        "t_bound": ratio(bound),
        "t_dram": ratio(merged.dram), "t_cache": ratio(total.cache), "t_tensor": ratio(merged.tensor),
        "t_scalar": ratio(merged.scalar),
        "t_special": ratio(total.special), "t_integer": ratio(total.integer), "t_latency": ratio(total.latency),
        "t_in_flight": ratio(total.in_flight), "t_spill": ratio(total.spill),
        "t_launch": ratio(merged.launch), "t_host": ratio(host.dram + host.tensor + host.scalar),
        "is_triton": float("triton" in languages), "is_cutile": float("cutile" in languages),
        "is_torch": float(not languages),
        "launches": float(len(trace.launches)), "ops": _log(1 + len(kinds)),
        "library_ops": float(kinds.count("library")),
        "fused_ops": float(kinds.count("fused")), "native_ops": float(kinds.count("native")),
        "scan_ops": float(kinds.count("scan")),
        "strided_ops": float(sum(op.strided for op in trace.ops)),
        "host_share": (host.dram + host.tensor + host.launch) / max(bound, EPSILON_MS),
    }  # fmt: skip


_MIX_NAMES = tuple(f"mix_{key}" for key in MIX)


def _launch(
    launch: LaunchTrace | None, place: Placement | None, own: KernelFigures, hardware: Hardware
) -> dict[str, float]:
    """Shape of the heaviest launch: tiles, loops, access, residency."""
    row = dict.fromkeys((*_LAUNCH_NAMES, *_MIX_NAMES), NAN)
    if launch is None or place is None:
        return row
    work, threads = launch.work, 32 * place.warps
    inner = max(work.loops, key=lambda lo: (lo.trips * max(lo.load_bytes, 1), lo.depth), default=None)
    m, n, k = work.dot_shape or (0, 0, 0)
    in_flight = bytes_in_flight(launch, place, hardware)
    row |= {
        "programs_per_sm": _log(launch.programs / hardware.sms), "waves": _log(place.waves),
        "utilisation": place.utilisation,
        "warps": _log(place.warps), "stages": float(place.stages), "blocks_per_sm": _log(place.fit.blocks),
        "occupancy": place.fit.fraction,
        "tile_per_thread": _log(work.largest_float_elements / threads, 0.1),
        "tile_bytes": _log(work.largest_tile_bytes, 1),
        "load_per_thread": _log(work.widest_load_bytes / threads, 0.1),
        "work_per_program": _log(work.load_bytes + work.store_bytes, 1),
        "vector_bytes": work.vector_weighted / max(work.load_bytes, 1),
        "wasted": work.lanes_wasted / max(work.lanes_loaded, 1),
        "load_waste": _log(work.load_sectors / max(work.load_bytes, 1), 1),
        "store_waste": _log(work.store_sectors / max(work.store_bytes, 1), 1),
        "dot_m": _log(m, 1), "dot_n": _log(n, 1), "dot_k": _log(k, 1), "dot_area": _log(m * n / threads, 1),
        "dot_narrow": _log(min(m, n) if m else 0, 1), "intensity": _log(work.dot_flops / max(work.load_bytes, 1), 0.1),
        "loop_trips": _log(inner.trips if inner else 1),
        "loop_depth": float(max((lo.depth for lo in work.loops), default=-1) + 1),
        "loop_bytes": _log(inner.load_bytes if inner else 0, 1), "loops": float(len(work.loops)),
        "loop_stages": float(max((lo.stages or 0 for lo in work.loops), default=0)),
        "specialised": float(any(lo.specialised for lo in work.loops)),
        "in_flight": _log(in_flight, 1), "reductions": _log(1 + work.reductions),
        "reduced_per_byte": _log(work.reduced / max(work.load_bytes, 1), 1e-3),
        "shuffled": _log(work.shuffles / max(work.load_bytes, 1), 1e-3),
        "scans": _log(work.scans / max(work.load_bytes, 1), 1e-3),
        "atomics": _log(work.atomics * launch.programs, 1), "gathered": work.gathered_bytes / max(work.load_bytes, 1),
        "bulk": work.bulk_bytes / max(work.load_bytes + work.store_bytes, 1), "imbalance": launch.imbalance,
        "loads_per_program": _log(1 + work.loads), "stores_per_program": _log(1 + work.stores),
        "odd_arguments": float(sum(isinstance(a, int) and a > 1 and a % 16 != 0 for a in launch.arguments)),
        "evict_first": float(any("evict_first" in h for h in work.hints)), "cache_hints": float(len(work.hints)),
        "max_registers": float(launch.options.get("maxnreg") or NAN),
        "ctas": float(launch.options.get("num_ctas") or 1),
        "occupancy_hint": float(launch.options.get("occupancy") or NAN),
        "autotuned": float("autotuned" in launch.options),
        "registers": float(own.registers) if own.registers is not None else NAN,
        "spills": _log(1 + own.spills) if own.spills is not None else NAN,
        "shared_bytes": _log(1 + own.shared_bytes) if own.shared_bytes is not None else NAN,
    }  # fmt: skip
    if own.instructions is not None:
        size = max(own.instructions.get("total", 1.0), 1.0)
        row |= {
            f"mix_{key}": _log(1 + own.instructions.get(key, 0.0))
            if key == "total"
            else own.instructions.get(key, 0.0) / size
            for key in MIX
        }
    return row


_LAUNCH_NAMES = (
    "programs_per_sm", "waves", "utilisation", "warps", "stages", "blocks_per_sm", "occupancy", "tile_per_thread",
    "tile_bytes",
    "load_per_thread", "work_per_program", "vector_bytes", "wasted", "load_waste", "store_waste", "dot_m", "dot_n",
    "dot_k", "dot_area",
    "dot_narrow", "intensity", "loop_trips", "loop_depth", "loop_bytes", "loops", "loop_stages", "specialised",
    "in_flight", "reductions",
    "reduced_per_byte", "shuffled", "scans", "atomics", "gathered", "bulk", "imbalance", "loads_per_program",
    "stores_per_program",
    "odd_arguments", "evict_first", "cache_hints", "max_registers", "ctas", "occupancy_hint", "autotuned",
    "registers", "spills", "shared_bytes",
)  # fmt: skip
