"""Host code over abstract tensors: which kernels are launched with what, and what torch itself is asked to do."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import Any

from tilecast.tools.forecast.trace import torch_ops
from tilecast.tools.forecast.trace.evaluator import Evaluator
from tilecast.tools.forecast.trace.torch_ops import HostOp
from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Bound,
    Class,
    Descriptor,
    Function,
    Instance,
    Ref,
    Tensor,
    Unknown,
    dtype_of,
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


class HostEvaluator(Evaluator):
    """Walks module level, constructors and ``forward``; collects launches and torch operations in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Launch | HostOp] = []
        self.unknown_calls = 0

    def emit(self, event: Launch | HostOp) -> None:
        """Record an event, up to a limit."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)

    # Attributes and subscripts.
    def get_attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            return self.tensor_attribute(value, name)
        if isinstance(value, Instance):
            return self.instance_attribute(value, name)
        if isinstance(value, Class):
            return self.class_attribute(value, name)
        return Bound(value, name)

    def tensor_attribute(self, value: Tensor, name: str) -> Any:
        """Plain facts of a tensor, or a method."""
        facts: dict[str, Any] = {
            "shape": value.shape, "dtype": Ref(f"torch.{value.dtype}"), "device": Ref("torch.device.cuda"), "ndim": len(value.shape),
            "is_cuda": True, "requires_grad": False, "itemsize": ITEM_BYTES[value.dtype], "data": value, "is_sparse": False,
        }  # fmt: skip
        if name in facts:
            return facts[name]
        if name in ("T", "mT"):
            return torch_ops.transposed(value)
        return Bound(value, name)

    def instance_attribute(self, value: Instance, name: str) -> Any:
        """An attribute, else a method found in the class."""
        if name in value.attributes:
            return value.attributes[name]
        for owner in self.lineage(value.definition, value.scope):
            found = self.class_attribute(Class(owner, value.scope), name)
            if isinstance(found, Function):
                static = any(d.endswith("staticmethod") for d in found.decorators)
                return found if static else Bound(value, name, found)
            if not isinstance(found, Unknown):
                return found
        if name == "training":
            return True
        return Bound(value, name)

    def lineage(self, node: ast.ClassDef | None, scope: dict[str, Any]) -> list[ast.ClassDef]:
        """The class and its bases that are defined in the file."""
        found: list[ast.ClassDef] = []
        while node is not None and len(found) < 8:
            found.append(node)
            bases = [self.eval(b, scope) for b in node.bases]
            node = next((b.node for b in bases if isinstance(b, Class)), None)
        return found

    def class_attribute(self, value: Class, name: str) -> Any:
        """A method or class-level value of a class of the file."""
        for node in value.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                scope: dict[str, Any] = {}
                self.do_FunctionDef(node, scope | {"__globals__": value.scope} | value.scope)
                inner = dict(value.scope)
                self.do_FunctionDef(node, inner)
                function = inner[name]
                function.scope = value.scope
                return function
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                return self.eval(node.value, value.scope)
        return UNKNOWN

    def get_item(self, value: Any, index: Any) -> Any:
        if isinstance(value, Function) and value.kernel == "triton":
            return Bound(value, "launch", index)
        if isinstance(value, Tensor):
            taken, op = torch_ops.index(value, index)
            if op is not None:
                self.emit(op)
            return taken
        if isinstance(value, Instance) and isinstance(index, int):
            items = value.attributes.get("items", [])
            return items[index] if index < len(items) else UNKNOWN
        return value if isinstance(value, Ref) else UNKNOWN

    def operate(self, symbol: type, left: Any, right: Any) -> Any:
        if symbol in (ast.Is, ast.IsNot):
            return (left is right) is (symbol is ast.Is)
        if symbol is ast.MatMult:
            return self.torch_call("matmul", [left, right], {})
        name = symbol.__name__.lower()
        return self.torch_call(
            "compare" if symbol in (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE) else name, [left, right], {}
        )

    # Calls.
    def call_value(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, Function):
            return self.call_function(target, args, kwargs)
        if isinstance(target, Class):
            return self.construct(target, args, kwargs)
        if isinstance(target, Instance):
            return self.call_instance(target, args, kwargs)
        if isinstance(target, Bound):
            return self.call_bound(target, args, kwargs)
        if isinstance(target, Ref):
            return self.call_library(target.path, args, kwargs)
        self.unknown_calls += 1
        return UNKNOWN

    def call_function(self, target: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of the file; under ``torch.compile`` its small operations are merged into one."""
        if not target.compiled:
            return self.invoke(target, args, kwargs)
        outer, self.events = self.events, []
        result = self.invoke(target, args, kwargs)
        inner, self.events = self.events, outer
        for event in torch_ops.fuse(inner, args, result):
            self.emit(event)
        return result

    def construct(self, target: Class, args: list[Any], kwargs: dict[str, Any]) -> Instance:
        """An instance of a class of the file: its constructor is walked."""
        instance = Instance(target.node.name, {}, target.node, target.scope)
        init = self.instance_attribute(instance, "__init__")
        if isinstance(init, Bound) and isinstance(init.extra, Function):
            kept, self.events = self.events, []
            self.invoke(init.extra, [instance, *args], kwargs)
            self.events = kept
        return instance

    def call_instance(self, target: Instance, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """``module(x)``: forward of a class of the file, or a ``torch.nn`` layer."""
        if target.definition is not None:
            forward = self.instance_attribute(target, "forward")
            if isinstance(forward, Bound) and isinstance(forward.extra, Function):
                return self.call_function(forward.extra, [target, *args], kwargs)
            return UNKNOWN
        if target.kind == "Sequential":
            value = args[0] if args else UNKNOWN
            for layer in target.attributes.get("items", []):
                value = self.call_value(layer, [value], {})
            return value
        return self.torch_call(*torch_ops.layer_call(target, args))

    def call_bound(self, target: Bound, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A method or a launcher."""
        owner = target.target
        if isinstance(target.extra, Function):
            return self.call_function(target.extra, [owner, *args], kwargs)
        if isinstance(owner, Function):
            return self.kernel_method(owner, target, args, kwargs)
        if isinstance(owner, Tensor):
            return self.torch_call(target.name, [owner, *args], kwargs)
        if isinstance(owner, Instance):
            if target.name in ("register_buffer", "register_parameter") and len(args) > 1:
                owner.attributes[args[0] if isinstance(args[0], str) else "?"] = args[1]
                return None
            if target.name == "forward" and owner.definition is None:
                return self.call_instance(owner, args, kwargs)
            return (
                owner
                if target.name in ("to", "cuda", "eval", "train", "half", "float", "bfloat16", "requires_grad_")
                else UNKNOWN
            )
        if isinstance(owner, int | float | str):
            return owner
        if isinstance(owner, Unknown):
            self.unknown_calls += 1
        return UNKNOWN

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

    def call_library(self, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of torch, triton or cuTile by dotted name."""
        name = path.rsplit(".", 1)[-1]
        if path.endswith("tile.launch") and len(args) >= 4:
            self.launch_cutile(args)
            return None
        if name == "cdiv" and len(args) == 2:
            return -(-args[0] // args[1]) if all(isinstance(a, int) for a in args) and args[1] else UNKNOWN
        if name == "next_power_of_2" and args:
            return 1 << (args[0] - 1).bit_length() if isinstance(args[0], int) and args[0] > 0 else UNKNOWN
        if name == "Config" and path.startswith("triton"):
            return Config({**(args[0] if args and isinstance(args[0], dict) else {}), **kwargs})
        if "TensorDescriptor" in path:
            return self.host_descriptor(name, args, kwargs)
        if path == "torch.compile":
            return self.compiled(args)
        if path.startswith("torch.nn.") and not path.startswith("torch.nn.functional") and name[:1].isupper():
            return torch_ops.layer(name, args, kwargs)
        if name == "get_device_properties":
            return Instance("properties", {"multi_processor_count": 132, "warp_size": 32})
        if path == "builtins.super":
            return Instance("super", {})
        if path.startswith(("torch.", "builtins.")):
            return (
                self.torch_call(name, args, kwargs)
                if any(isinstance(a, Tensor) for a in _flat(args)) or name in torch_ops.MAKERS
                else UNKNOWN
            )
        if path.startswith("functools."):
            return args[0] if args else UNKNOWN
        return UNKNOWN

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
        shape, strides = (
            (base.shape, base.strides)
            if name == "from_tensor"
            else (
                kwargs.get("shape", args[1] if len(args) > 1 else base.shape),
                kwargs.get("strides", args[2] if len(args) > 2 else base.strides),
            )
        )
        parts = [
            p if isinstance(p, tuple | list) and all(isinstance(n, int) for n in p) else None
            for p in (shape, strides, block)
        ]
        if any(p is None for p in parts):
            return UNKNOWN
        return Descriptor(base, 0, *(tuple(p) for p in parts if p is not None))

    def torch_call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A torch operation on abstract tensors; what it costs is recorded."""
        result, ops = torch_ops.apply(name, args, kwargs)
        for op in ops:
            self.emit(op)
        return result


def _flat(args: list[Any]) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, list | tuple) else [a])]


def dtype_argument(value: Any) -> str | None:
    """A dtype handed over as an argument."""
    return dtype_of(value.path) if isinstance(value, Ref) else None


def total_bytes(tensors: list[Tensor]) -> int:
    """Bytes of distinct storages."""
    return sum({t.storage: t.nbytes for t in tensors}.values())


def numel(shape: tuple[int, ...]) -> int:
    """Elements of a shape."""
    return math.prod(shape)
