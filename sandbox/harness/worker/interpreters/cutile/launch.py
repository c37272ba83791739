"""Kernels of the cuTile stand-in: how they are declared and launched. A block is one call of the kernel's own body.

What has no docstring does what cuda-tile 1.7.0 documents under the same name.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import torch

from ..errors import LaunchError, OutOfBounds, Unsupported
from ..scheduling import Index, Scheduler
from . import ops
from . import types as ct
from .arithmetic import Scalar
from .memory import Array, array_of, state
from .tile import Tile

_HINTS = ("num_ctas", "occupancy", "opt_level", "num_worker_warps")
_GRID_LIMITS = (2**31 - 1, 65535, 65535)


def _check_hint(name: str, value: Any) -> None:
    for item in value.values() if isinstance(value, ct.ByTarget) else [value]:
        if item is None:
            continue
        power = item > 0 and item & (item - 1) == 0
        valid = {
            "num_ctas": power and item <= 16,
            "occupancy": 1 <= item <= 32,
            "opt_level": 0 <= item <= 3,
            "num_worker_warps": power and item <= 32,
        }[name]
        if not valid:
            raise ValueError(f"{name}={item} is out of range")


class Kernel:
    """What ``@ct.kernel`` makes of a function."""

    def __init__(self, function: Any, hints: dict[str, Any]) -> None:
        if not isinstance(function, FunctionType):
            raise TypeError("`kernel` decorator must be applied to a Python function")
        for name, value in hints.items():
            if name not in _HINTS:
                raise TypeError(f"kernel() got an unexpected keyword argument {name!r}")
            _check_hint(name, value)
        self._pyfunc, self._hints = function, hints
        functools.update_wrapper(self, function)
        # Inside a kernel these two work on tiles; on anything else they are the builtins.
        function.__globals__.setdefault("min", ops.kernel_min)
        function.__globals__.setdefault("max", ops.kernel_max)

    def replace_hints(self, **hints: Any) -> Kernel:
        return Kernel(self._pyfunc, {**self._hints, **hints})

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Tile kernels cannot be called directly. Use cuda.tile.launch() instead.")

    @functools.cached_property
    def constants(self) -> frozenset[str]:
        """Parameters that are annotated as constants."""
        try:
            hints = typing.get_type_hints(self._pyfunc, include_extras=True)
        except (NameError, TypeError):
            hints = dict(inspect.get_annotations(self._pyfunc))
        return frozenset(
            name
            for name, hint in hints.items()
            if any(isinstance(m, ct.ConstantAnnotation) for m in getattr(hint, "__metadata__", ()))
            or (isinstance(hint, str) and "Constant" in hint)
        )


def kernel(function: Any = None, /, **hints: Any) -> Any:
    """``@ct.kernel``, with or without hints."""
    return (lambda f: Kernel(f, hints)) if function is None else Kernel(function, hints)


def function(func: Any = None, /, **_: Any) -> Any:
    """``@ct.function``: helpers are called as they are."""
    return (lambda f: f) if func is None else func


def _argument(name: str, item: Any) -> Any:
    """A run-time argument as the kernel sees it."""
    if isinstance(item, torch.Tensor):
        return array_of(item, name)
    if isinstance(item, bool | Array):
        return item
    if isinstance(item, int | np.integer):
        return Scalar(int(item))
    if isinstance(item, float | np.floating):
        return Tile(np.asarray(item, np.float32), ct.float32)
    if isinstance(item, tuple | list):
        return type(item)([_argument(f"{name}[{i}]", part) for i, part in enumerate(item)])
    raise Unsupported(f"cuda.tile kernel arguments of type {type(item).__name__}")


def _extent(grid: Any) -> Index:
    shape = grid if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(shape) <= 3:
        raise LaunchError(f"a grid has one to three dimensions, not {len(shape)}")
    counts = [operator.index(n) for n in shape] + [1] * (3 - len(shape))
    for axis, (count, limit) in enumerate(zip(counts, _GRID_LIMITS, strict=True)):
        if not 0 < count <= limit:
            raise LaunchError(f"grid dimension {axis} is {count}; it must be between 1 and {limit}")
    return counts[0], counts[1], counts[2]


_grids: list[Index] = []


def launch(stream: Any, grid: Any, kernel: Any, kernel_args: Any, /, **_: Any) -> None:
    """``ct.launch``: every block, one after another.

    Raises:
        LaunchError: for a grid out of range or wrong arguments.
        OutOfBounds, Unsupported: as the block's body does.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"launch() expects a tile kernel, not {type(kernel).__name__}")
    body = kernel._pyfunc
    parameters = list(inspect.signature(body).parameters)
    if len(parameters) != len(kernel_args):
        raise LaunchError(f"kernel {body.__name__} takes {len(parameters)} arguments, {len(kernel_args)} were given")
    constants = kernel.constants
    values = [a if name in constants else _argument(name, a) for name, a in zip(parameters, kernel_args, strict=True)]
    extent = _extent(grid)
    scheduler = Scheduler(extent, lambda _: body(*values))
    saved = state.scheduler, state.kernel
    state.scheduler, state.kernel = scheduler, body.__name__
    _grids.append(extent)
    try:
        with np.errstate(all="ignore"):
            scheduler.run_all()
    except (OutOfBounds, Unsupported):
        raise
    except Exception as error:
        error.add_note(f"in {state.where()}")
        raise
    finally:
        state.scheduler, state.kernel = saved
        _grids.pop()


def bid(axis: int) -> Scalar:
    if state.scheduler is None:
        raise ct.TileError("bid() outside a kernel")
    return Scalar(state.scheduler.program[axis])


def num_blocks(axis: int) -> Scalar:
    if not _grids:
        raise ct.TileError("num_blocks() outside a kernel")
    return Scalar(_grids[-1][axis])


def assert_(cond: Any, /, message: Any = None) -> None:
    held = cond.values().all() if isinstance(cond, Tile) else cond
    if not held:
        raise AssertionError(message or f"assert_ failed in {state.where()}")


def static_assert(condition: Any, message: Any = None, /) -> None:
    if not condition:
        raise ct.TileStaticAssertionError(message or "static assertion failed")


def static_exception(exc: Any, /) -> Any:
    raise exc if isinstance(exc, BaseException) else ct.StaticException(str(exc))


def printf(format: str, *args: Any) -> None:
    builtins.print(format % tuple(a._python() if isinstance(a, Tile) else a for a in args), end="")


def _same(value: Any, *_: Any) -> Any:
    return value


def _nothing(*_: Any, **__: Any) -> None: ...


def names() -> dict[str, Callable[..., Any]]:
    """Launching and control by their public names."""
    plain = (kernel, function, launch, bid, num_blocks, assert_, static_assert, static_exception, printf)
    return {
        **{f.__name__: f for f in plain},
        **dict.fromkeys(("static_eval", "static_iter", "ensure_constant", "assume_divisible_by"), _same),
        **dict.fromkeys(("grid_dependency_control_wait", "grid_dependency_control_launch_dependents"), _nothing),
        "print": builtins.print,
    }
