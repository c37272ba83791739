"""A kernel's Python as Triton's compiler reads it: what differs between the two languages is rewritten.

Differences: numbers keep their compile-time nature but answer to ``.to`` and ``.dtype``; ``range`` gives run-time integers
whose division truncates; ``and``, ``or``, ``not`` and chained comparisons work elementwise on blocks; ``assert`` is a
device assertion.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as _interpreter

_PREFIX = "__interpreted_"


def _tensor(value: Any) -> Any:
    return _interpreter.interpreter_semantic.to_tensor(value)


class ScalarInt(int):
    """An integer that also has the members of a scalar tensor; division truncates toward zero as on a GPU."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_tensor(int(self)), name)

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        quotient = abs(int(self)) // abs(int(other))
        return ScalarInt(quotient if (self < 0) == (other < 0) else -quotient)

    def __mod__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        rest = abs(int(self)) % abs(int(other))
        return ScalarInt(-rest if self < 0 else rest)


class ScalarFloat(float):
    """A float that also has the members of a scalar tensor."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_tensor(float(self)), name)


def _keep_kind(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operate(self: ScalarInt, *others: Any) -> Any:
        out = plain(self, *others)
        return ScalarInt(out) if type(out) is int else out

    return operate


for _name in (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
    "neg",
    "abs",
    "invert",
):
    setattr(ScalarInt, f"__{_name}__", _keep_kind(f"__{_name}__"))


def value(item: Any) -> Any:
    """What an assignment binds."""
    if type(item) is int:
        return ScalarInt(item)
    if type(item) is float:
        return ScalarFloat(item)
    if type(item) is tuple:
        return tuple(value(part) for part in item)
    if isinstance(item, tl.constexpr):
        return value(item.value)
    return item


def runtime_range(*bounds: Any, **_: Any) -> Iterator[ScalarInt]:
    """``range`` and ``tl.range`` with bounds of any integer kind; pipelining hints are ignored."""
    known = {"arg1": 0, "arg2": 1, "step": 2}
    parts = list(bounds) + [_[name] for name in known if name in _ and known[name] >= len(bounds)]
    return (ScalarInt(i) for i in range(*(int(getattr(p, "value", p).__index__()) for p in parts if p is not None)))


def static_range(*bounds: Any, **named: Any) -> Iterator[int]:
    """``tl.static_range``: compile-time integers."""
    return (int(i) for i in runtime_range(*bounds, **named))


def _is_block(item: Any) -> bool:
    return isinstance(item, tl.core.tensor) and item.type.is_block()


def both(first: Any, second: Callable[[], Any]) -> Any:
    """``and``."""
    if _is_block(first):
        return first.logical_and(second())
    if not first:
        return first
    return second()


def either(first: Any, second: Callable[[], Any]) -> Any:
    """``or``."""
    if _is_block(first):
        return first.logical_or(second())
    return first if first else second()


def negation(item: Any) -> Any:
    """``not``."""
    return item == 0 if _is_block(item) else not item


def assertion(condition: Any, message: Any = "") -> None:
    """``assert`` in a kernel."""
    held = condition.handle.data.all() if isinstance(condition, tl.core.tensor) else condition
    if not held:
        raise AssertionError(str(message))


HELPERS: dict[str, Callable[..., Any]] = {
    "value": value, "range": runtime_range, "both": both, "either": either, "negation": negation, "assertion": assertion,
}  # fmt: skip


def _call(helper: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=_PREFIX + helper, ctx=ast.Load()), args=list(arguments), keywords=[])


def _later(expression: ast.expr) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=nothing, body=expression)


class _Transformer(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = _call("value", node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        loop = node.iter
        if isinstance(loop, ast.Call) and isinstance(loop.func, ast.Name) and loop.func.id == "range":
            loop.func = ast.Name(id=_PREFIX + "range", ctx=ast.Load())
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        helper = "both" if isinstance(node.op, ast.And) else "either"
        out = node.values[0]
        for operand in node.values[1:]:
            out = _call(helper, out, _later(operand))
        return out

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call("negation", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        operands = [node.left, *node.comparators]
        out: ast.expr | None = None
        for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
            pair = ast.Compare(left=left, ops=[op], comparators=[right])
            out = pair if out is None else _call("both", out, _later(pair))
        assert out is not None
        return out

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        arguments = [node.test] if node.msg is None else [node.test, node.msg]
        return ast.Expr(value=_call("assertion", *arguments))


def rewrite(function: Any) -> Any:
    """The function with the same globals and closure whose body runs in the interpreter.

    Where there is no source text the function itself is returned.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return function
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return function
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    arguments.defaults, arguments.kw_defaults = [], [None] * len(arguments.kwonlyargs)
    body = _Transformer().visit(definition)
    free = list(function.__code__.co_freevars)
    names = [_PREFIX + helper for helper in HELPERS] + free
    factory = ast.FunctionDef(
        name=_PREFIX + "factory",
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(arg=name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
        ),
        body=[body, ast.Return(value=ast.Name(id=definition.name, ctx=ast.Load()))],
        decorator_list=[],
    )
    factory.type_params = []  # type: ignore[attr-defined, unused-ignore]
    module = ast.fix_missing_locations(ast.Module(body=[factory], type_ignores=[]))
    ast.increment_lineno(module, first - 1)
    made: dict[str, Any] = {}
    exec(compile(module, inspect.getfile(function), "exec"), function.__globals__, made)
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    out = made[_PREFIX + "factory"](*HELPERS.values(), *closure)
    out.__defaults__, out.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    out.__module__, out.__qualname__ = function.__module__, function.__qualname__
    return out
