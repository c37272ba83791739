"""What a compiler said of each kernel, in the one form that features use: from evidence or from recorded kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilecast.sandbox.hardware import Hardware

REGISTER_UNIT = 256
"""Registers are handed out to a warp in units of this many."""


@dataclass(frozen=True)
class KernelFigures:
    """Registers a thread, spills, shared bytes a block, warps, and machine instructions where they are known."""

    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    warps: int | None = None
    stages: int | None = None
    instructions: Mapping[str, float] | None = None
    failed: bool = False
    """The compiler refused it."""


@dataclass(frozen=True)
class Fit:
    """Blocks resident on one multiprocessor, and the share of its warps."""

    blocks: int
    fraction: float


def fit(figures: KernelFigures, hardware: Hardware, warps: int) -> Fit:
    """Occupancy by the tightest of warps, registers, shared memory and blocks (CUDA occupancy calculator's rule).

    Unknown registers or shared bytes do not limit.
    """
    limits = [hardware.max_warps_per_sm // max(warps, 1), hardware.max_blocks_per_sm]
    if figures.registers:
        per_warp = math.ceil(figures.registers * 32 / REGISTER_UNIT) * REGISTER_UNIT
        limits.append(hardware.registers_per_sm // max(per_warp * warps, 1))
    if figures.shared_bytes:
        limits.append(hardware.shared_per_sm_bytes // (figures.shared_bytes + 1024))
    blocks = max(min(limits), 1)
    return Fit(blocks, min(1.0, blocks * warps / hardware.max_warps_per_sm))


def from_kernels(kernels: Iterable[Mapping[str, Any]]) -> dict[str, KernelFigures]:
    """From the ``kernels`` of a recorded measurement."""
    return {
        str(k.get("name", "")): KernelFigures(
            k.get("regs"), k.get("spills"), k.get("shared"), k.get("warps"), k.get("stages")
        )
        for k in kernels
    }


MIX = (
    "total", "tensor_core", "async_copy", "bulk_copy", "shared_load", "shared_store", "barriers", "special_function",
    "local_load", "local_store", "fma", "integer", "convert", "shuffle",
)  # fmt: skip


def from_evidence(evidence: Mapping[str, Any]) -> dict[str, KernelFigures]:
    """From an evidence document (see :mod:`tilecast.sandbox.evidence`)."""
    found: dict[str, KernelFigures] = {}
    for launch in evidence.get("launches") or []:
        resources, mix = launch.get("resources") or {}, launch.get("instructions")
        found[str(launch.get("kernel", ""))] = KernelFigures(
            registers=resources.get("registers"),
            spills=resources.get("spills"),
            shared_bytes=resources.get("shared_bytes"),
            warps=resources.get("warps"),
            stages=resources.get("stages"),
            instructions={key: float(mix.get(key) or 0) for key in MIX} if isinstance(mix, Mapping) else None,
            failed=launch.get("status") in ("COMPILE_ERROR", "OUT_OF_RESOURCES", "COMPILER_CRASH", "COMPILE_TIMEOUT"),
        )
    return found
