"""What this very device reaches: copy bandwidth, matrix-product rates, the time of an empty launch. Measured once, cached.

Runs in the judge, which no candidate shares. Needs a device that is not busy; takes about a second on a large GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

VERSION = 1
COPY_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}
PRODUCT_SIDE = {"cuda": 8192, "cpu": 1024}
_GPU_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def measure(device: torch.device) -> dict[str, Any]:
    """Bandwidth in GB/s (bytes read plus bytes written), TFLOP/s by dtype, and an empty launch in milliseconds."""
    timed = _cuda_ms if device.type == "cuda" else _cpu_ms
    result: dict[str, Any] = {"version": VERSION, "torch": torch.__version__, "device": str(device.type)}
    result["bandwidth_gbs"] = _copy_rate(device, timed)
    result["tflops"] = _product_rates(device, timed)
    if device.type == "cuda":
        tiny = torch.zeros(1, device=device)
        result["launch_ms"] = round(timed(lambda: tiny.add_(1), 50), 5)
        result["l2_bytes"] = int(torch.cuda.get_device_properties(device).L2_cache_size)
        torch.cuda.empty_cache()
    return result


def _copy_rate(device: torch.device, timed: Callable[[Callable[[], object], int], float]) -> float:
    count = COPY_BYTES[device.type] // 4
    source = torch.randn(count, device=device)
    target = torch.empty_like(source)
    return round(8 * count / timed(lambda: target.copy_(source), 15) / 1e6, 1)


def _product_rates(device: torch.device, timed: Callable[[Callable[[], object], int], float]) -> dict[str, float]:
    side = PRODUCT_SIDE[device.type]
    rates = {}
    dtypes = _GPU_DTYPES if device.type == "cuda" else (torch.float32,)
    for dtype in dtypes:
        # Random values: on constant ones a GPU draws less power and runs faster than it ever will.
        left = torch.randn(side, side, device=device, dtype=dtype)
        right = torch.randn(side, side, device=device, dtype=dtype)
        ms = timed(lambda left=left, right=right: left @ right, 8)  # type: ignore[misc]
        rates[str(dtype).removeprefix("torch.")] = round(2 * side**3 / ms / 1e9, 4)
        if dtype is torch.float32 and device.type == "cuda":
            rates["tfloat32"] = _tf32_rate(left, right, timed)
    return rates


def _tf32_rate(left: torch.Tensor, right: torch.Tensor, timed: Callable[[Callable[[], object], int], float]) -> float:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return round(2 * left.shape[0] ** 3 / timed(lambda: left @ right, 8) / 1e9, 4)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _cuda_ms(work: Callable[[], object], repeats: int) -> float:
    """Least of ``repeats`` event times after a warm-up of a tenth of a second: a ceiling is what was reached, not the usual."""
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        work()
        torch.cuda.synchronize()
    pairs = [(_event(), _event()) for _ in range(repeats)]
    for start, stop in pairs:
        start.record()
        work()
        stop.record()
    torch.cuda.synchronize()
    return float(min(start.elapsed_time(stop) for start, stop in pairs))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _cpu_ms(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def load_or_measure(device: torch.device, state_dir: Path | None, key: str) -> dict[str, Any]:
    """The cached figures of the device named ``key`` (its UUID or model), measured now if there are none.

    A cache that cannot be written costs a measurement next time and nothing else.
    """
    file = None if state_dir is None else state_dir / f"ceilings-{_file_name(key)}.json"
    if file is not None and file.is_file():
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(file.read_text(encoding="utf-8"))
            if found.get("version") == VERSION and found.get("torch") == torch.__version__:
                return dict(found)
    result = measure(device) | {"measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(f".{os.getpid()}.tmp")
            partial.write_text(json.dumps(result), encoding="utf-8")
            partial.replace(file)
    return result


def _file_name(key: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "-" for c in key)[:80] or "device"
