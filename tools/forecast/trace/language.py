"""The part of Python that the evaluator knows: operators, builtins, methods, limits, and how control flow leaves a body."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

MAX_STEPS = 60_000

MAX_SECONDS = 3.0

MAX_DEPTH = 40

MAX_INTEGER = 2**63

MAX_ITEMS = 4096

HOST_LOOP = 64
"""Iterations of a host loop that are walked; launches beyond are left out."""


class Limit(Exception):
    """Steps, seconds or depth are used up."""


class FunctionReturn(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class LoopBreak(Exception):
    pass


class LoopContinue(Exception):
    pass


BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
}  # fmt: skip

COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip

UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip

BUILTINS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "abs": abs, "int": int, "float": float, "bool": bool, "len": len, "sum": sum,
    "tuple": tuple, "list": list, "dict": dict, "sorted": sorted, "round": round, "zip": lambda *a: list(zip(*a, strict=False)),
    "enumerate": lambda a: list(enumerate(a)), "str": str, "all": all, "any": any, "reversed": lambda a: list(reversed(a)),
    "divmod": divmod, "print": lambda *a, **k: None,
}  # fmt: skip

METHODS: dict[type, frozenset[str]] = {
    dict: frozenset({"get", "items", "keys", "values", "copy", "update", "pop", "setdefault"}),
    list: frozenset({"append", "extend", "index", "copy", "pop", "insert", "reverse"}),
    tuple: frozenset({"index", "count"}),
    str: frozenset({"startswith", "endswith", "lower", "upper"}),
    int: frozenset({"bit_length"}),
    float: frozenset(),
}

PLAIN = (int, float, bool, str, type(None), tuple, list, dict)

Scope = dict[str, Any]
