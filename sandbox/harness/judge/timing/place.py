"""Where measuring happens: the device, what is kept of it, and the sizes of legs, pools and flushes that suit it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tilecast.sandbox.harness.judge.timing.sampling import SamplingPlan
from tilecast.sandbox.harness.judge.zygotes import Zygotes

FLUSH_LEAST_BYTES = 256 << 20
FLUSH_L2_FACTOR = 2.5
POOL_BYTES = {"cpu": 512 << 20}
POOL_SHARE_OF_DEVICE = 0.1
LEG_S = {"cuda": 0.0015, "cpu": 0.02}
"""Drawing and checking a call's inputs costs more than a short call: legs are only as long as their hand-over demands."""
SYSTEMATIC_MS = 0.0004
"""By how much two placements of one kernel's data may differ on a GPU: a kernel of 26 us against itself, its data drawn anew
each time, came out between 1.0 % faster and 1.2 % slower (seven comparisons on an H200), one of 212 us within 0.2 %."""
WARM_BLOCKS = 2
TIMED_THREADS = 2
"""CPU workers run with two threads, pinned to as many processors."""


@dataclass(frozen=True)
class Place:
    """Where measuring happens: fork servers, device, folder for what is kept, data-sheet figures."""

    zygotes: Zygotes
    device: torch.device
    state_dir: Path | None = None
    hardware: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """Identity of the device."""
        return device_key(self.device)

    @property
    def flush_bytes(self) -> int:
        """Size of what is overwritten before a cold call."""
        if self.device.type != "cuda":
            return 0
        l2 = int(torch.cuda.get_device_properties(self.device).L2_cache_size)
        return max(FLUSH_LEAST_BYTES, int(FLUSH_L2_FACTOR * l2))

    @property
    def cpus(self) -> tuple[int, ...]:
        """Processors that CPU workers are pinned to."""
        if self.device.type == "cuda":
            return ()
        return tuple(sorted(os.sched_getaffinity(0))[-TIMED_THREADS:])

    def plan(self, max_seconds: float, call_bytes: int) -> SamplingPlan:
        """Sizes of the sampling, so that the inputs and outputs of a leg fit beside everything else."""
        pool = POOL_BYTES.get(self.device.type) or int(POOL_SHARE_OF_DEVICE * _device_bytes(self.device))
        most = max(1, min(24, pool // max(1, 4 * call_bytes)))
        return SamplingPlan(max_seconds, LEG_S[self.device.type], min(5, most), most)


def device_key(device: torch.device) -> str:
    """Identity of a device, for what is measured once and kept."""
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return f"{found.name}-{found.uuid}"
    return f"cpu-{_cpu_model()}-{os.cpu_count()}"


def _device_bytes(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    except OSError:
        return "unknown"
