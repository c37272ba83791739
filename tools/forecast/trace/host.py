"""Host code over abstract tensors: which kernels are launched with what, and what torch itself is asked to do."""

from __future__ import annotations

import ast
from typing import Any

from tilecast.tools.forecast.trace.launching import Config, LaunchingEvaluator
from tilecast.tools.forecast.trace.layers import fuse, layer, layer_call
from tilecast.tools.forecast.trace.making import MAKERS
from tilecast.tools.forecast.trace.torch_ops import apply
from tilecast.tools.forecast.trace.values import (
    ITEM_BYTES,
    UNKNOWN,
    Bound,
    Class,
    Function,
    Instance,
    Ref,
    Tensor,
    Unknown,
)
from tilecast.tools.forecast.trace.views import take_index, transposed


class HostEvaluator(LaunchingEvaluator):
    """Walks module level, constructors and ``forward``; collects launches and torch operations in order."""

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
            "shape": value.shape, "dtype": Ref(f"torch.{value.dtype}"), "device": Ref("torch.device.cuda"),
            "ndim": len(value.shape),
            "is_cuda": True, "requires_grad": False, "itemsize": ITEM_BYTES[value.dtype], "data": value,
            "is_sparse": False,
        }  # fmt: skip
        if name in facts:
            return facts[name]
        if name in ("T", "mT"):
            return transposed(value)
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
            taken, op = take_index(value, index)
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
        for event in fuse(inner, args, result):
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
        return self.torch_call(*layer_call(target, args))

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
            return layer(name, args, kwargs)
        if name == "get_device_properties":
            return Instance("properties", {"multi_processor_count": 132, "warp_size": 32})
        if path == "builtins.super":
            return Instance("super", {})
        if path.startswith(("torch.", "builtins.")):
            return (
                self.torch_call(name, args, kwargs)
                if any(isinstance(a, Tensor) for a in _flat(args)) or name in MAKERS
                else UNKNOWN
            )
        if path.startswith("functools."):
            return args[0] if args else UNKNOWN
        return UNKNOWN

    def torch_call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A torch operation on abstract tensors; what it costs is recorded."""
        result, ops = apply(name, args, kwargs)
        for op in ops:
            self.emit(op)
        return result


def _flat(args: list[Any]) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, list | tuple) else [a])]
