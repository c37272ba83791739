"""What a tile compiler refuses by its own rules, seen in the text alone: no compiler has to be asked, and no GPU either."""

from __future__ import annotations

from typing import Any

from tilecast.tools.forecast.trace import LaunchTrace, Trace

MOST_WARPS = 32
"""1,024 threads a block, of 32 a warp."""


def refusal(trace: Trace) -> str:
    """Why a launch of a candidate cannot compile, with the value and what is allowed; empty if nothing is known against it."""
    return next((why for launch in trace.launches if (why := _of_launch(launch))), "")


def _of_launch(launch: LaunchTrace) -> str:
    if launch.language == "triton":
        for name, most in (("num_warps", MOST_WARPS), ("num_ctas", 16)):
            value = launch.options.get(name)
            if _is_known(value) and not _is_power_of_two(value, most):
                return f"{launch.kernel}: {name}={value!r}, and Triton takes powers of two from 1 to {most}"
        stages = launch.options.get("num_stages")
        if _is_known(stages) and (not isinstance(stages, int) or stages < 0):
            return f"{launch.kernel}: num_stages={stages!r}, and Triton takes whole numbers from 0"
    if launch.work.odd_tile:
        return f"{launch.kernel}: a tile of {launch.work.odd_tile} elements, and its lengths must be powers of two"
    return ""


def _is_known(value: Any) -> bool:
    return isinstance(value, int | float | str)


def _is_power_of_two(value: Any, most: int) -> bool:
    return isinstance(value, int) and 0 < value <= most and value & (value - 1) == 0
