"""A handful of figures of a kernel for whoever writes the next one, and what limits it. Not a dump.

Figures come from Nsight Compute where it may read the hardware's counters, else from what the compiler gave the kernel.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

METRICS = {
    "duration_ns": "gpu__time_duration.sum",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_percent": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "dram_bytes": "dram__bytes.sum",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "threads_per_block": "launch__block_size",
    "limit_registers": "launch__occupancy_limit_registers",
    "limit_shared": "launch__occupancy_limit_shared_mem",
    "limit_warps": "launch__occupancy_limit_warps",
    "local_loads": "smsp__inst_executed_op_local_ld.sum",
}
"""Name here -> name of the counter (https://docs.nvidia.com/nsight-compute/ProfilingGuide/)."""

UNITS = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
}  # fmt: skip
BUSY_PERCENT = 60.0
LOW_OCCUPANCY_PERCENT = 30.0


class ProfileUnreadable(Exception):
    """What the profiler wrote is not the table that was asked for."""


@dataclass(frozen=True)
class KernelFigures:
    """Figures of one launched kernel by the names of :data:`METRICS`; a counter that the card lacks is absent."""

    name: str
    figures: dict[str, float]

    @property
    def ms(self) -> float:
        """Its duration in milliseconds, under the profiler."""
        return self.figures.get("duration_ns", 0.0) / 1e6


def parse_table(text: str) -> list[KernelFigures]:
    """Read ``ncu --csv --page raw`` output: a header line, a line of units, one line a kernel.

    Raises:
        ProfileUnreadable: naming what is missing.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(('"ID"', "ID,"))), None)
    if start is None:
        tail = next((line for line in reversed(lines) if line.strip()), "nothing")
        raise ProfileUnreadable(f"no table in the profiler's output; it ends with: {tail[:200]}")
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        raise ProfileUnreadable("the profiler saw no kernel")
    head = rows[0]
    units = [*rows[1], *[""] * (len(head) - len(rows[1]))]
    columns = {name: head.index(counter) for name, counter in METRICS.items() if counter in head}
    kernel = head.index("Kernel Name")
    return [
        KernelFigures(row[kernel], {name: _number(row[i], units[i]) for name, i in columns.items() if row[i].strip()})
        for row in rows[2:]
        if len(row) == len(head)
    ]


def _number(text: str, unit: str) -> float:
    try:
        return float(text.replace(",", "")) * UNITS.get(unit.strip(), 1.0)
    except ValueError as error:
        raise ProfileUnreadable(f"{text!r} ({unit}) is not a number") from error


def main_kernel(kernels: list[KernelFigures]) -> KernelFigures:
    """The one that takes the longest.

    Raises:
        ProfileUnreadable: if there is none.
    """
    if not kernels:
        raise ProfileUnreadable("the profiler saw no kernel")
    return max(kernels, key=lambda kernel: kernel.ms)


def limiter(figures: dict[str, float], sms: int) -> str:
    """What limits the kernel, in words that a next attempt can act on."""
    if figures.get("local_loads", 0.0) > 0:
        return "registers spill to local memory: smaller tiles, fewer stages or more warps"
    busiest = max(("dram_percent", "sm_percent", "l2_percent"), key=lambda name: figures.get(name, 0.0))
    if figures.get(busiest, 0.0) >= BUSY_PERCENT:
        return {
            "dram_percent": "memory bandwidth: only fewer bytes make it faster",
            "sm_percent": "arithmetic units: cheaper instructions or tensor cores",
            "l2_percent": "L2 bandwidth: more reuse in registers or shared memory",
        }[busiest]
    if 0 < figures.get("blocks", 0.0) < sms:
        return f"too few blocks: {figures['blocks']:.0f} for {sms} multiprocessors"
    if figures.get("occupancy_percent", 100.0) < LOW_OCCUPANCY_PERCENT:
        return f"latency: few warps in flight, limited by {_occupancy_limit(figures)}"
    return (
        "latency: neither memory nor arithmetic is busy; more independent loads in flight, wider accesses, pipelining"
    )


def _occupancy_limit(figures: dict[str, float]) -> str:
    limits = {"limit_registers": "registers", "limit_shared": "shared memory", "limit_warps": "warps a block"}
    known = {name: figures[name] for name in limits if name in figures}
    return limits[min(known, key=lambda name: known[name])] if known else "resources"


def counters_profile(kernels: list[KernelFigures], sms: int) -> dict[str, Any]:
    """The profile of a call from its counters: totals, the longest kernel's figures, its limiter."""
    longest = main_kernel(kernels)
    shown = {k: round(v, 2) for k, v in longest.figures.items() if not k.startswith("limit_")}
    return {
        "source": "nsight-compute",
        "kernels": len(kernels),
        "total_ms": round(sum(kernel.ms for kernel in kernels), 5),
        "longest": longest.name[:120],
        "share_of_longest": round(longest.ms / max(sum(kernel.ms for kernel in kernels), 1e-12), 3),
        "figures": shown,
        "limited_by": limiter(longest.figures, sms),
    }


def static_profile(kernels: list[dict[str, Any]], why: str) -> dict[str, Any]:
    """The profile from the compiler's resources alone: name, registers, spills, shared bytes, warps, stages a kernel."""
    spilling = [kernel["name"] for kernel in kernels if (kernel.get("spills") or 0) > 0]
    if spilling:
        limited = f"registers spill in {', '.join(map(str, spilling))[:120]}: smaller tiles, fewer stages or more warps"
    else:
        limited = "unknown without hardware counters"
    return {"source": "compiler", "why": why, "kernels": kernels[:8], "limited_by": limited}
