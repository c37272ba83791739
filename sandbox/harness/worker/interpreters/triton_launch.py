"""Launching an interpreted Triton kernel: arguments, grid, programs, errors."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as _interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from .errors import LaunchError, OutOfBounds, Unsupported
from .memory import Memory, Region, region_of
from .scheduling import Index, Scheduler
from .triton_memory import state
from .triton_rewrite import rewrite

TensorHandle = _interpreter.TensorHandle
_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_rewritten: dict[Any, Any] = {}


def rewritten(function: Any) -> Any:
    """The interpretable form of a kernel or device function, made once."""
    found = _rewritten.get(function)
    if found is None:
        found = _rewritten[function] = rewrite(function)
    return found


@lru_cache(maxsize=1)
def _launch_options() -> frozenset[str]:
    """Keywords that a launch understands beside the kernel's own parameters."""
    known = {
        "num_warps",
        "num_stages",
        "num_ctas",
        "maxnreg",
        "debug",
        "warmup",
        "stream",
        "grid",
        "launch_cooperative_grid",
    }
    try:
        from triton.backends.nvidia.compiler import CUDAOptions
    except ImportError:
        return frozenset(known)
    return frozenset(known | ({f.name for f in fields(CUDAOptions)} if is_dataclass(CUDAOptions) else set()))


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "constexpr" in annotation
    return annotation is tl.constexpr or isinstance(annotation, tl.constexpr)


@lru_cache(maxsize=64)
def _element_type(dtype: torch.dtype) -> Any:
    probe = SimpleNamespace(dtype=dtype, data_ptr=lambda: 0)
    return tl.str_to_ty(triton.runtime.jit.mangle_type(probe), None)


def _scalar(value: Any, dtype: Any) -> Any:
    from .numerics import storage

    return tl.tensor(TensorHandle(np.array([value], dtype=storage(dtype.name)), dtype), dtype)


def _integer(value: int) -> Any:
    for dtype, low, high in ((tl.int32, -(2**31), 2**31), (tl.int64, -(2**63), 2**63), (tl.uint64, 0, 2**64)):
        if low <= value < high:
            return _scalar(value, dtype)
    raise LaunchError(f"integer argument {value} does not fit 64 bits")


class _Arguments:
    """Turns host arguments into what the kernel's body sees, and collects the memory that they bring."""

    def __init__(self) -> None:
        self.regions: list[Region] = []

    def convert(self, name: str, item: Any) -> Any:
        if isinstance(item, tl.constexpr):
            return item.value
        if isinstance(item, bool | np.bool_):
            return _scalar(bool(item), tl.int1)
        if isinstance(item, int | np.integer):
            return _integer(int(item))
        if isinstance(item, float | np.floating):
            return _scalar(item, tl.float32)
        if isinstance(item, TensorDescriptor):
            return self._descriptor(name, item)
        if isinstance(item, tuple):
            parts = [self.convert(f"{name}[{i}]", part) for i, part in enumerate(item)]
            return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)
        if hasattr(item, "data_ptr"):
            return self._pointer(name, item)
        return item

    def _pointer(self, name: str, item: Any) -> Any:
        tensor = item.base if isinstance(item, triton.runtime.jit.TensorWrapper) else item
        if not isinstance(tensor, torch.Tensor):
            raise Unsupported(f"kernel arguments of type {type(tensor).__name__}")
        if tensor.layout != torch.strided:
            raise Unsupported(f"tensors with layout {tensor.layout}")
        region = region_of(tensor, name)
        if region is not None:
            self.regions.append(region)
        dtype = _element_type(item.dtype) if isinstance(item.dtype, torch.dtype) else tl.pointer_type(item.dtype)
        return tl.tensor(TensorHandle(np.array([item.data_ptr()], dtype=np.uint64), dtype), dtype)

    def _descriptor(self, name: str, item: Any) -> Any:
        strides = [_integer(s) for s in item.strides]
        strides[-1] = tl.constexpr(1)
        made = _interpreter.interpreter_semantic.make_tensor_descriptor(
            base=self._pointer(name, item.base),
            shape=[_integer(s) for s in item.shape],
            strides=strides,
            block_shape=[tl.constexpr(b) for b in item.block_shape],
            padding_option=getattr(item, "padding", "zero"),
        )
        made.handle.round_f32_to_tf32 = getattr(item, "round_f32_to_tf32", False)
        return made


class Launch:
    """One launch: runs every program of the grid, each to its end, in order of its number."""

    def __init__(self, function: Any, grid: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.function = rewritten(function)
        self.name = function.__name__
        signature = inspect.signature(function)
        unknown = set(keywords) - set(signature.parameters) - _launch_options()
        if unknown:
            raise LaunchError(
                f"kernel {self.name}: keyword argument {sorted(unknown)[0]!r} is not one of its parameters"
            )
        keywords = {k: v for k, v in keywords.items() if k in signature.parameters}
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        self.grid = self._extent(grid, dict(bound.arguments))
        converter = _Arguments()
        self.values: dict[str, Any] = {}
        for name, item in bound.arguments.items():
            if _is_constexpr(signature.parameters[name].annotation):
                self.values[name] = getattr(item, "value", item) if isinstance(item, tl.constexpr) else item
            else:
                self.values[name] = converter.convert(name, item)
        self.memory = Memory(self.where, converter.regions)
        self.scheduler = Scheduler(self.grid, self._run_one)

    def _extent(self, grid: Any, values: dict[str, Any]) -> tuple[int, int, int]:
        shape = grid(values) if callable(grid) else grid
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not 1 <= len(shape) <= 3:
            raise LaunchError(f"kernel {self.name}: a grid has one to three dimensions, not {len(shape)}")
        counts = [operator.index(n) for n in shape] + [1] * (3 - len(shape))
        for axis, (count, limit) in enumerate(zip(counts, _GRID_LIMITS, strict=True)):
            if not 0 <= count <= limit:
                raise LaunchError(f"kernel {self.name}: grid dimension {axis} is {count}; the limit is {limit}")
        return counts[0], counts[1], counts[2]

    def where(self) -> str:
        """Kernel and program, for messages."""
        return f"kernel {self.name}, program {self.scheduler.program}"

    def run(self) -> None:
        """Run all programs.

        Raises:
            OutOfBounds: for an access outside every tensor of the launch.
            Unsupported: for what this interpreter lacks.
        """
        builder = _interpreter.interpreter_builder
        saved = state.memory, state.scheduler
        state.memory, state.scheduler = self.memory, self.scheduler
        builder.set_grid_dim(*self.grid)
        try:
            with np.errstate(all="ignore"):
                self.scheduler.run_all()
        except (OutOfBounds, Unsupported):
            raise
        except NotImplementedError as error:
            raise Unsupported(f"this in Triton {triton.__version__} ({error})") from error
        except Exception as error:
            error.add_note(f"in {self.where()}")
            raise
        finally:
            state.memory, state.scheduler = saved

    def _run_one(self, program: Index) -> None:
        builder = _interpreter.interpreter_builder
        outer = getattr(builder, "grid_idx", None)
        builder.grid_idx = program
        try:
            self.function(**self.values)
        finally:
            builder.grid_idx = outer


class CompiledStandIn:
    """What a launch or a warm-up gives back: figures that host code asks of a compiled kernel, taken from an H100."""

    def __init__(self, kernel: Any, options: dict[str, Any]) -> None:
        self._kernel = kernel
        self.n_regs, self.n_spills, self.n_max_threads = 64, 0, 1024
        self.name = kernel.fn.__name__
        self.asm: dict[str, str] = {}
        warps, stages = options.get("num_warps") or 4, options.get("num_stages") or 3
        self.metadata = SimpleNamespace(shared=16384, num_warps=warps, num_stages=stages, num_ctas=1, name=self.name)

    def _init_handles(self) -> None:
        """Nothing to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*arguments: Any, **keywords: Any) -> Any:
            return self._kernel.run(*arguments, grid=grid, warmup=False, **keywords)

        return launch


def run_kernel(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
    """Replaces ``InterpretedFunction.run``."""
    if not warmup:
        for hook in self.pre_run_hooks:
            hook(*arguments, **keywords)
        Launch(self.fn, grid, arguments, keywords).run()
    return CompiledStandIn(self, keywords)


def call_device_function(self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Replaces ``InterpretedFunction.__call__``: errors come through as they are."""
    return rewritten(self.fn)(*arguments, **keywords)
