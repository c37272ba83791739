"""A small evaluator of Python expressions over abstract values. It never runs the file: every operation is ours."""

from __future__ import annotations

import ast
import math
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilecast.tools.forecast.trace.language import (
    BINARY,
    BUILTINS,
    COMPARE,
    HOST_LOOP,
    MAX_INTEGER,
    MAX_ITEMS,
    MAX_SECONDS,
    MAX_STEPS,
    METHODS,
    PLAIN,
    UNARY,
    Limit,
    Scope,
)
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Bound,
    Function,
    Instance,
    Ref,
    Tensor,
    Tile,
    Unknown,
)


class Expressions:
    """Evaluates expressions; subclasses say what libraries, tensors and tiles do."""

    def __init__(self) -> None:
        self.steps = 0
        self.depth = 0
        self.started = time.monotonic()

    def call_value(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call of anything that is no plain Python function of the file."""
        return UNKNOWN

    def get_attribute(self, value: Any, name: str) -> Any:
        """Attribute of a library name, tensor, tile or instance."""
        return UNKNOWN

    def get_item(self, value: Any, index: Any) -> Any:
        """Subscript of a tensor, tile or kernel."""
        return UNKNOWN

    def operate(self, symbol: type, left: Any, right: Any) -> Any:
        """Binary operation or comparison with a tensor or tile in it."""
        return UNKNOWN

    # Statements.
    def tick(self) -> None:
        """Count one step.

        Raises:
            Limit: when steps or seconds are used up.
        """
        self.steps += 1
        if self.steps > MAX_STEPS or (self.steps % 256 == 0 and time.monotonic() - self.started > MAX_SECONDS):
            raise Limit(f"more than {MAX_STEPS} steps or {MAX_SECONDS} s")

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Bind a name, unpack a sequence, or set an item or attribute."""
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = list(value) if isinstance(value, tuple | list | range) else []
            for index, part in enumerate(target.elts):
                self.assign(part, items[index] if index < len(items) else UNKNOWN, scope)
        elif isinstance(target, ast.Attribute):
            owner = self.eval(target.value, scope)
            if isinstance(owner, Instance):
                owner.attributes[target.attr] = value
        elif isinstance(target, ast.Subscript):
            owner, index = self.eval(target.value, scope), self.eval(target.slice, scope)
            if isinstance(owner, dict) and isinstance(index, str | int | float | tuple):
                owner[index] = value
            elif isinstance(owner, Tensor):
                self.call_value(Bound(owner, "copy_"), [value], {})

    def call(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call anything."""
        if isinstance(target, Ref) and target.path.startswith("builtins."):
            return self.builtin(target.path[9:], args, kwargs)
        if isinstance(target, Ref) and target.path.startswith("math."):
            function = getattr(math, target.path[5:], None)
            return self.guarded(function, *args) if callable(function) else function if function else UNKNOWN
        if isinstance(target, Bound) and any(
            isinstance(target.target, k) and target.name in n for k, n in METHODS.items()
        ):
            return self.guarded(getattr(target.target, target.name), *args)
        return self.call_value(target, args, kwargs)

    def builtin(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A builtin function over plain values."""
        if name == "range" and all(isinstance(a, int) for a in args) and 1 <= len(args) <= 3:
            return self.guarded(range, *args)
        if name == "isinstance" or name not in BUILTINS:
            return self.call_value(Ref("builtins." + name), args, kwargs)
        if any(isinstance(a, Tile | Tensor) for a in args):
            return self.call_value(Ref("builtins." + name), args, kwargs)
        return self.guarded(BUILTINS[name], *args, **kwargs)

    def truth(self, value: Any) -> bool:
        """Which way a condition goes; an unknown one goes into the body."""
        if isinstance(value, Tile):
            return value.ints is None or bool(value.ints.any())
        return bool(value) if isinstance(value, PLAIN) else True

    def eval(self, node: ast.expr, scope: Scope) -> Any:
        """Value of an expression."""
        self.tick()
        handler = getattr(self, "on_" + type(node).__name__, None)
        return UNKNOWN if handler is None else handler(node, scope)

    def on_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def on_Name(self, node: ast.Name, scope: Scope) -> Any:
        if node.id in scope:
            return scope[node.id]
        parent = scope.get("__globals__", {})
        if node.id in parent:
            return parent[node.id]
        return Ref("builtins." + node.id)

    def on_Tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return tuple(self.sequence(node.elts, scope))

    def on_List(self, node: ast.List, scope: Scope) -> Any:
        return self.sequence(node.elts, scope)

    def on_Dict(self, node: ast.Dict, scope: Scope) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            item = self.eval(value, scope)
            if key is None:
                found.update(item if isinstance(item, dict) else {})
                continue
            name = self.eval(key, scope)
            if isinstance(name, str | int | float | tuple):
                found[name] = item
        return found

    def sequence(self, nodes: Sequence[ast.expr], scope: Scope) -> list[Any]:
        """Elements of a display or call, with ``*`` unpacked."""
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                value = self.eval(node.value, scope)
                items.extend(value if isinstance(value, tuple | list | range) else [UNKNOWN])
            else:
                items.append(self.eval(node, scope))
        return items[:MAX_ITEMS]

    def on_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        return self.binary(type(node.op), self.eval(node.left, scope), self.eval(node.right, scope))

    def on_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.eval(node.operand, scope)
        if isinstance(value, Tile | Tensor):
            return self.operate(type(node.op), value, 0)
        return self.guarded(UNARY[type(node.op)], value)

    def on_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        value: Any = UNKNOWN
        for item in node.values:
            value = self.eval(item, scope)
            if self.truth(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def on_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        left, result = self.eval(node.left, scope), True
        for op, item in zip(node.ops, node.comparators, strict=True):
            right = self.eval(item, scope)
            result = self.binary(type(op), left, right)
            if isinstance(result, bool) and not result:
                return False
            left = right
        return result

    def on_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.eval(node.body if self.truth(self.eval(node.test, scope)) else node.orelse, scope)

    def on_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        return ""

    def on_Lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return Function(node, scope)

    def on_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def on_Slice(self, node: ast.Slice, scope: Scope) -> Any:
        parts = [None if part is None else self.eval(part, scope) for part in (node.lower, node.upper, node.step)]
        return slice(*parts)

    def on_ListComp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Any:
        first = node.generators[0]
        values = self.eval(first.iter, scope)
        if not isinstance(values, tuple | list | range):
            return UNKNOWN
        inner, found = dict(scope), []
        for item in values[:HOST_LOOP]:
            self.assign(first.target, item, inner)
            if all(self.truth(self.eval(test, inner)) for test in first.ifs):
                found.append(self.eval(node.elt, inner))
        return found

    on_GeneratorExp = on_ListComp

    def on_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        if isinstance(value, Ref):
            return Ref(f"{value.path}.{node.attr}")
        for kind, names in METHODS.items():
            if isinstance(value, kind):
                return Bound(value, node.attr) if node.attr in names else self.get_attribute(value, node.attr)
        return self.get_attribute(value, node.attr)

    def on_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        value, index = self.eval(node.value, scope), self.eval(node.slice, scope)
        if isinstance(value, tuple | list | dict | str | range):
            return self.guarded(operator.getitem, value, index)
        return self.get_item(value, index)

    def on_Call(self, node: ast.Call, scope: Scope) -> Any:
        target = self.eval(node.func, scope)
        args = self.sequence(node.args, scope)
        kwargs: dict[str, Any] = {}
        for item in node.keywords:
            value = self.eval(item.value, scope)
            if item.arg is None:
                kwargs.update({k: v for k, v in value.items() if isinstance(k, str)} if isinstance(value, dict) else {})
            else:
                kwargs[item.arg] = value
        return self.call(target, args, kwargs)

    def binary(self, symbol: type, left: Any, right: Any) -> Any:
        """Arithmetic or comparison on two values."""
        if isinstance(left, Tile | Tensor) or isinstance(right, Tile | Tensor):
            return self.operate(symbol, left, right)
        if symbol in (ast.Is, ast.IsNot) and (isinstance(left, Unknown) or isinstance(right, Unknown)):
            return symbol is ast.IsNot
        function = BINARY.get(symbol) or COMPARE.get(symbol)
        if function is None or isinstance(left, Unknown) or isinstance(right, Unknown):
            return UNKNOWN
        if symbol in (ast.Pow, ast.LShift) and isinstance(right, int) and abs(right) > 64:
            return UNKNOWN
        if symbol is ast.Mult and (isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple)):
            size = len(left) * right if isinstance(left, str | list | tuple) and isinstance(right, int) else MAX_ITEMS
            return self.guarded(function, left, right) if size < MAX_ITEMS else UNKNOWN
        return self.guarded(function, left, right)

    def guarded(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Apply to plain values; what raises or grows out of hand is unknown."""
        try:
            value = function(*args, **kwargs)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, KeyError, IndexError, AttributeError):
            return UNKNOWN
        return UNKNOWN if isinstance(value, int) and abs(value) > MAX_INTEGER else value
