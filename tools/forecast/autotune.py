"""A drop-in performance model for ``triton.autotune``: measure the promising configurations only.

    from tilecast.tools.forecast.autotune import perf_model

    def grid(meta):
        return (triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"]),)

    @triton.autotune(configs=CONFIGS, key=["M", "N", "K"],
                     prune_configs_by={"perf_model": perf_model(__file__, "kernel", grid), "top_k": 8})
    @triton.jit
    def kernel(...): ...

Triton calls the model once a configuration with the launch's arguments and sorts by what it returns. The kernel's text is read
from its file and walked (see :mod:`tilecast.tools.forecast.trace`); nothing is compiled and nothing runs on the GPU. This module
lives in a user's own torch process and asks torch nothing but the arguments' shapes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.hardware import Hardware, find_hardware, require_hardware
from tilecast.tools.forecast.excess import log_ratio
from tilecast.tools.forecast.features import Described, Floor, describe_launches
from tilecast.tools.forecast.model import WHOLE, Model, load
from tilecast.tools.forecast.trace.program import LaunchTrace, Trace, walk_launch
from tilecast.tools.forecast.trace.values import Function, Tensor

PerfModel = Callable[..., float]
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def perf_model(
    file: str | Path, kernel: str, grid: Callable[[Mapping[str, Any]], tuple[int, ...]], gpu: str | None = None
) -> PerfModel:
    """A callable for ``prune_configs_by={"perf_model": …}``: expected milliseconds of one configuration;
    infinite where its tiles cannot fit into shared memory.

    Args:
        file: the Python file that defines the kernel (usually ``__file__``).
        kernel: the kernel's name in it.
        grid: the launch grid as a function of the meta-parameters, as handed to the launch.
        gpu: whose figures to use; by default the current CUDA device, asked of torch on first use.

    Raises:
        UsageError: if the file does not define the kernel, or the GPU named is unknown.
    """
    function = _kernel(Path(file), kernel)
    named = require_hardware(gpu) if gpu is not None else None
    model = load().models[WHOLE]

    def expected_ms(**arguments: Any) -> float:
        hardware = named or _current()
        if hardware is None:
            return 0.0
        values = {k: _abstract(v) for k, v in arguments.items() if k not in OPTIONS}
        options = {k: v for k, v in arguments.items() if k in OPTIONS and v is not None}
        shape = tuple(int(n) for n in grid(arguments))
        launch = walk_launch("triton", function, shape, values, options)
        if not fits(launch, hardware):
            return math.inf
        described, floor = _describe(launch, [v for v in values.values() if isinstance(v, Tensor)], hardware)
        return floor.ms * math.exp(float(log_ratio(_centre(model, described))))

    return expected_ms


def _kernel(file: Path, name: str) -> Function:
    from tilecast.tools.forecast.trace.program import kernels_of

    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error
    for function in kernels_of(source):
        if isinstance(function.node, ast.FunctionDef) and function.node.name == name:
            return function
    raise UsageError(f"{file}: defines no Triton kernel {name!r} at module level")


@lru_cache(maxsize=1)
def _current() -> Hardware | None:
    """The current device's figures, by name; None for a GPU that is not in the catalogue (every configuration ties)."""
    import importlib

    cuda = importlib.import_module("torch").cuda
    return find_hardware(str(cuda.get_device_name())) if cuda.is_available() else None


def fits(launch: LaunchTrace, hardware: Hardware) -> bool:
    """Whether a pipelined product's tiles fit into a block's shared memory.

    Triton keeps the operands' tiles of a product's loop in one buffer a stage where a warp group multiplies (Hopper, at least 64
    rows and 4 warps), else in one fewer; recorded allocations on an H200 agree to the byte.
    """
    if not launch.work.dots:
        return True
    stages, warps = (int(launch.options.get(name) or 1) for name in ("num_stages", "num_warps"))
    grouped = hardware.arch.startswith("sm_90") and (launch.work.dot_shape or (0,))[0] >= 64 and warps >= 4
    buffers = stages if grouped else max(stages - 1, 1)
    largest = max((loop.load_bytes for loop in launch.work.loops), default=0.0)
    return largest * buffers <= hardware.shared_per_block_bytes


def _describe(launch: LaunchTrace, tensors: Sequence[Tensor], hardware: Hardware) -> tuple[Described, Floor]:
    """Features of one launch; the floor is one pass over the tensors that it is handed."""
    trace = Trace(launches=[launch], storages={t.storage: float(t.nbytes) for t in tensors})
    bandwidth = (hardware.measured_bandwidth_gbs or 0.9 * hardware.bandwidth_gbs) * 1e6
    memory = sum(t.nbytes for t in tensors) / bandwidth
    compute = launch.work.dot_flops * launch.programs / (hardware.matrix_tflops("bfloat16") * 1e9)
    floor = Floor(memory, compute, max(memory, compute, hardware.launch_us / 1e3))
    return describe_launches(trace, floor, hardware), floor


def _abstract(value: Any) -> Any:
    """A tensor by shape, dtype and strides; numbers and texts as they are; anything else is unknown to the kernel."""
    if hasattr(value, "shape") and hasattr(value, "stride") and hasattr(value, "dtype"):
        dtype = str(value.dtype).removeprefix("torch.")
        dtype = "float8" if dtype.startswith("float8") else dtype
        return Tensor(tuple(value.shape), dtype, tuple(value.stride()))
    return getattr(value, "value", value)


def _centre(model: Model, described: Described) -> float:
    rows = described.values[None, :].astype(np.float32).astype(np.float64)
    return float(model.centres(rows)[0])
