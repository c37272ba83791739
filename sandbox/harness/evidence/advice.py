"""One line for each thing that compile-time figures say should change. Pure functions of the evidence's plain form."""

from __future__ import annotations

from typing import Any

from tilecast.sandbox.harness.evidence.launches import SEVERITY

_EXTRA_PASSES = 0.3
_TAIL = 0.35
_MATRIX_INTENSITY = 16.0
"""Operations a byte from which on a workload is taken to need tensor cores."""


def advise(launches: list[dict[str, Any]], work: dict[str, Any] | None, host: dict[str, Any], target: str) -> list[str]:
    """What to change, worst first; failures before inefficiencies."""
    failing = sorted(launches, key=lambda launch: -SEVERITY.index(launch["status"]))
    lines = [f"{launch['kernel']}: {launch['advice']}" for launch in failing if launch.get("advice")]
    for launch in launches:
        specialized = (launch.get("instructions") or {}).get("register_reallocation")
        if specialized and launch["language"] == "triton" and target == "sm_90":
            # Every such kernel that was ever measured (ten, Triton 3.6 on an H200) hung; with 8 warps the request is ignored.
            lines.append(
                f"{launch['kernel']}: warp specialization takes effect here and hung on Hopper: leave it, or use 8 warps"
            )
        lines += [f"{launch['kernel']}: {line}" for line in _of_launch(launch, work)]
    lines += _of_traffic(work, launches, host)
    return list(dict.fromkeys(lines))[:8]


def _of_launch(launch: dict[str, Any], work: dict[str, Any] | None) -> list[str]:
    if launch["status"] not in ("OK", "SPILLS"):
        return []
    lines = []
    waves, programs = launch.get("waves"), launch.get("programs")
    use, mix, occupancy = launch.get("resources") or {}, launch.get("instructions") or {}, launch.get("occupancy") or {}
    if waves is not None and waves < 0.5:
        lines.append(f"{programs} programs fill {waves:.0%} of the GPU: split the work into more")
    elif waves is not None and 1.0 < waves < 4.0 and 0 < waves % 1.0 < _TAIL:
        lines.append(f"{waves:.2f} waves leave the last one {waves % 1.0:.0%} full: change the grid or the block size")
    if occupancy.get("blocks_per_sm") == 1 and occupancy.get("fraction", 1.0) <= 0.125 and not mix.get("tensor_core"):
        lines.append(f"one block of {use.get('warps')} warps a multiprocessor, limited by {occupancy['limiter']}")
    local = (mix.get("loop") or {}).get("local", 0)
    if local > 8:
        lines.append(
            f"{local} local-memory instructions in the inner loop: the tile is too large for the register file"
        )
    if work and work["flops"] > _MATRIX_INTENSITY * work["compulsory_bytes"] and _does_much(launch, mix):
        lines.append(
            "no tensor-core instruction in a workload of matrix products: use the language's matrix product on 16-bit tiles"
        )
    narrow = sum(n for bits, n in mix.get("global_load_bits", {}).items() if int(bits) <= 16)
    loads = sum(mix.get("global_load_bits", {}).values())
    if loads and narrow * 2 > loads:
        lines.append("global loads of 16 bits or less a thread: let the fastest index be contiguous, aligned and wide")
    return lines


def _does_much(launch: dict[str, Any], mix: dict[str, Any]) -> bool:
    return bool(mix) and not mix.get("tensor_core") and mix.get("fma", 0) > 64 and bool(mix.get("loop"))


def _of_traffic(work: dict[str, Any] | None, launches: list[dict[str, Any]], host: dict[str, Any]) -> list[str]:
    if not work or work["extra_passes"] < _EXTRA_PASSES or host.get("compiled"):
        return []
    parts = sum(launch["count"] for launch in launches) + host.get("count", 0)
    if parts < 2:
        return []
    return [
        f"{parts} launches and torch operations move {1 + work['extra_passes']:.1f} times the least bytes: fuse them"
    ]
