"""How many blocks of a kernel fit on one multiprocessor at once, and what stops more.

NVIDIA: the rules of ``cuda_occupancy.h`` (CUDA toolkit; also the Occupancy Calculator of Nsight Compute) for compute
capability 8.0 and later: registers are handed out a warp at a time in units of 256 from four partitions, shared memory in
units of 128 bytes plus 1 KiB a block for the system; a block whose registers exceed the file is refused (limit 0).
AMD CDNA3: "AMD Instinct MI300 Instruction Set Architecture", 3.6.4: 512 vector registers a lane, in units of 8, shared
between the waves of a SIMD (at most 8); 64 KiB of LDS a compute unit.
"""

from __future__ import annotations

from typing import Any

_REGISTER_UNIT = 256
_PARTITIONS = 4
_SHARED_UNIT = 128
_SYSTEM_SHARED_BYTES = 1024
_AMD_VECTOR_REGISTERS = 512
_AMD_WAVES_PER_SIMD = 8
_AMD_SIMDS = 4
_AMD_LDS_BYTES = 65536


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def nvidia(registers: int, shared_bytes: int, warps: int, hardware: dict[str, Any]) -> dict[str, Any]:
    """Blocks a multiprocessor by each limit; see :class:`Occupancy` for the fields. ``shared_bytes`` is a block's."""
    most_warps = int(hardware["max_warps_per_sm"])
    per_warp = _up(max(registers, 1) * 32, _REGISTER_UNIT)
    register_warps = int(hardware["registers_per_sm"]) // _PARTITIONS // per_warp * _PARTITIONS
    taken = _up(shared_bytes + _SYSTEM_SHARED_BYTES, _SHARED_UNIT)
    limits = {
        "warps": most_warps // warps,
        "registers": 0
        if per_warp * _up(warps, _PARTITIONS) > int(hardware["registers_per_sm"])
        else register_warps // warps,
        "shared": int(hardware["shared_per_sm_bytes"]) // taken,
        "blocks": int(hardware.get("max_blocks_per_sm", 32)),
    }
    return _result(limits, warps, most_warps)


def amd(registers: int, shared_bytes: int, warps: int) -> dict[str, Any]:
    """As :func:`nvidia`, of one compute unit; ``registers`` counts vector and accumulator registers together."""
    waves = min(_AMD_WAVES_PER_SIMD, _AMD_VECTOR_REGISTERS // _up(max(registers, 1), 8))
    most = _AMD_WAVES_PER_SIMD * _AMD_SIMDS
    limits = {
        "warps": most // warps,
        "registers": waves * _AMD_SIMDS // warps,
        "shared": _AMD_LDS_BYTES // max(shared_bytes, 1) if shared_bytes else most,
        "blocks": most,
    }
    return _result(limits, warps, most)


def _result(limits: dict[str, int], warps: int, most_warps: int) -> dict[str, Any]:
    blocks = min(limits.values())
    # Several may bind at once: name the one that a kernel's author can change.
    limiter = next(name for name in ("registers", "shared", "blocks", "warps") if limits[name] == blocks)
    return {
        "blocks_per_sm": blocks,
        "warps_per_sm": blocks * warps,
        "fraction": round(blocks * warps / most_warps, 4),
        "limiter": limiter,
        "limits": limits,
    }
