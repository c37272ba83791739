"""How host code launches kernels: grids, options, hints, tensor descriptors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilecast.tools.forecast.trace.evaluator import Evaluator
from tilecast.tools.forecast.trace.host_op import HostOp
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Bound,
    Descriptor,
    Function,
    Ref,
    Tensor,
)


@dataclass
class Launch:
    """One kernel launch as the host makes it."""

    language: str
    kernel: Function
    grid: tuple[int, ...]
    args: list[Any]
    kwargs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    """``num_warps``, ``num_stages``, ``maxnreg``, ``occupancy``, …"""


@dataclass
class Config:
    """A ``triton.Config``."""

    values: dict[str, Any]


LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_cooperative_grid")

MAX_EVENTS = 512


class LaunchingEvaluator(Evaluator):
    """The part of the host evaluator that turns launches into events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Launch | HostOp] = []
        self.unknown_calls = 0

    def emit(self, event: Launch | HostOp) -> None:
        """Record an event, up to a limit."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)

    def kernel_method(self, kernel: Function, target: Bound, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``kernel[grid](…)``, ``kernel.run``, ``kernel.replace_hints``."""
        if target.name == "launch":
            self.launch_triton(kernel, target.extra, args, kwargs)
            return None
        if target.name in ("replace_hints", "with_hints"):
            return Function(kernel.node, kernel.scope, kernel.decorators, {**kernel.hints, **kwargs})
        if target.name in ("run", "warmup"):
            self.launch_triton(kernel, kwargs.pop("grid", (1,)), args, kwargs)
        return kernel

    def launch_triton(self, kernel: Function, grid: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Work out grid and options of a Triton launch; an autotuned kernel takes its middle configuration."""
        configs = [c for c in kernel.hints.get("configs") or [] if isinstance(c, Config)]
        chosen = configs[len(configs) // 2].values if configs else {}
        merged = {**chosen, **kwargs}
        if isinstance(grid, Function):
            meta = {k: v for k, v in self.bind(kernel, args, merged).items() if k != "__globals__"}
            grid = self.invoke(grid, [meta], {})
        sizes = grid if isinstance(grid, tuple | list) else (grid,)
        shape = tuple(n if isinstance(n, int) and n > 0 else 1 for n in sizes)
        options = {k: merged.pop(k) for k in LAUNCH_OPTIONS if k in merged}
        options["known_grid"] = all(isinstance(n, int) for n in sizes)
        self.emit(
            Launch("triton", kernel, shape, args, merged, options | ({"autotuned": len(configs)} if configs else {}))
        )

    def compiled(self, args: list[Any]) -> Any:
        """``torch.compile(f)`` as a call."""
        if args and isinstance(args[0], Function):
            return Function(args[0].node, args[0].scope, (*args[0].decorators, "torch.compile"), args[0].hints)
        if args and isinstance(args[0], Bound) and isinstance(args[0].extra, Function):
            inner = args[0].extra
            return Bound(
                args[0].target, args[0].name, Function(inner.node, inner.scope, (*inner.decorators, "torch.compile"))
            )
        return args[0] if args else Ref("torch.compile")

    def launch_cutile(self, args: list[Any]) -> None:
        """``ct.launch(stream, grid, kernel, arguments)``."""
        grid, kernel, given = args[1], args[2], args[3]
        if not isinstance(kernel, Function):
            self.unknown_calls += 1
            return
        sizes = grid if isinstance(grid, tuple | list) else (grid,)
        shape = tuple(n if isinstance(n, int) and n > 0 else 1 for n in sizes)
        options = {**kernel.hints, "known_grid": all(isinstance(n, int) for n in sizes)}
        self.emit(Launch("cutile", kernel, shape, list(given) if isinstance(given, tuple | list) else [], {}, options))

    def host_descriptor(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``TensorDescriptor(base, shape, strides, block)`` or ``.from_tensor(tensor, block)``."""
        base = args[0] if args else kwargs.get("base", kwargs.get("tensor"))
        if not isinstance(base, Tensor):
            return UNKNOWN
        block = kwargs.get(
            "block_shape",
            args[1 if name == "from_tensor" else 3] if len(args) > (1 if name == "from_tensor" else 3) else None,
        )
        given = {"shape": base.shape, "strides": base.strides}
        if name != "from_tensor":
            given |= {key: args[at] for key, at in (("shape", 1), ("strides", 2)) if len(args) > at} | kwargs
        shape, strides, block = (_numbers(part) for part in (given["shape"], given["strides"], block))
        if shape is None or strides is None or block is None:
            return UNKNOWN
        return Descriptor(base, 0, shape, strides, block)


def _numbers(value: Any) -> tuple[int, ...] | None:
    """A sequence of whole numbers, or None."""
    known = isinstance(value, tuple | list) and all(isinstance(n, int) for n in value)
    return tuple(value) if known else None
