"""``--profile``: Nsight Compute where it may read counters, else what the compiler says; said once why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilecast.sandbox.harness.judge.failure import WorkerFailed
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.timing.profile import (
    METRICS,
    ProfileUnreadable,
    counters_profile,
    parse_table,
    static_profile,
)
from tilecast.sandbox.harness.judge.timing.tools import REPORT, NotOnThisMachine, ToolFailed, find_tool, run_tool

if TYPE_CHECKING:
    from tilecast.sandbox.harness.judge.timing.bench import Benchmark

LIMIT_S = 90.0
_NOT_PERMITTED = "ERR_NVGPUCTRPERM"
_why_not: dict[str, str] = {}
"""Device -> why its counters cannot be read: asked once a process."""


def profile_candidate(bench: Benchmark, session: Session, source: str) -> dict[str, Any]:
    """The profile of one call of the candidate on the timed workload."""
    device = bench.place.device
    if device.type != "cuda":
        return static_profile([], "a CPU has no profile here")
    key = bench.place.key
    if key not in _why_not:
        try:
            return _with_counters(bench, source)
        except (ToolFailed, ProfileUnreadable) as error:
            if isinstance(error, NotOnThisMachine):
                _why_not[key] = str(error)
            return static_profile(_resources(session), f"Nsight Compute: {str(error)[:300]}")
    return static_profile(_resources(session), "no hardware counters here (said before)")


def _with_counters(bench: Benchmark, source: str) -> dict[str, Any]:
    tool = find_tool("ncu")
    if tool is None:
        raise NotOnThisMachine("ncu is not on this machine")
    # The card's clocks stay as they are: other work on it, and other measurements, depend on them.
    program = [tool, "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw"]
    program += ["--metrics", ",".join(METRICS.values()), "--launch-count", "32", "--log-file", "{cache}/" + REPORT]
    inputs = bench.contents.draw(1)[0].inputs
    report = run_tool(
        bench.place.zygotes, program, bench.case, source, inputs, device=str(bench.place.device), limit_s=LIMIT_S
    )
    if _NOT_PERMITTED in report.text + report.log:
        raise NotOnThisMachine(
            f"this user may not read the card's counters ({_NOT_PERMITTED}; see NVIDIA's page of that name)"
        )
    return counters_profile(
        parse_table(report.text), torch.cuda.get_device_properties(bench.place.device).multi_processor_count
    )


def _resources(session: Session) -> list[dict[str, Any]]:
    try:
        found = session.request({"op": "resources"}, "listing of kernels").get("kernels", [])
    except WorkerFailed:
        return []
    known = ("name", "regs", "spills", "shared", "warps", "stages")
    return [{name: item.get(name) for name in known} for item in found[:8] if isinstance(item, dict)]
