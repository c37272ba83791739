"""Triton: kernels marked ``triton.jit``, launched as ``kernel[grid](...)``."""

from __future__ import annotations

import ast
import re

from tilecast.sandbox.languages.base import (
    STAGES,
    WARPS,
    ParsedSource,
    Tunables,
    block_options,
    is_power_of_two,
)
from tilecast.sandbox.languages.literals import Knob, Scope, place_of, tunables_of
from tilecast.sandbox.source import Candidate

_BLOCK_NAME = re.compile(r"BLOCK|TILE|CHUNK|GROUP|UNROLL|SPLIT|^[BT][A-Z]?$|^[BT]_?[A-Z0-9]{1,2}$|ROWS|COLS", re.I)
_NOT_BLOCK = re.compile(r"DIM|HEAD|HIDDEN|STRIDE|NUM_|N_", re.I)
_OPTIONS = {"num_warps": (4, WARPS), "num_stages": (3, STAGES)}


class _Kernel:
    def __init__(self, node: ast.FunctionDef) -> None:
        self.name = node.name
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.parameters = [argument.arg for argument in arguments]
        self.constexprs = {
            a.arg for a in arguments if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)
        }
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        self.tunes_itself = "autotune" in decorators
        self.is_kernel = re.search(r"\bjit\b", decorators) is not None
        self.has_dot = any(isinstance(n, ast.Attribute) and n.attr in ("dot", "dot_scaled") for n in ast.walk(node))


class Triton:
    """Host half of Triton."""

    name = "triton"
    title = "Triton"

    def recognises(self, parsed: ParsedSource) -> bool:
        """Whether the text imports Triton."""
        return parsed.imports_from("triton")

    def tunables(self, candidate: Candidate, parsed: ParsedSource) -> Tunables | None:
        """Block sizes among the ``tl.constexpr`` arguments of launches, and the launches' warps and stages."""
        kernels = _kernels(parsed.tree)
        knobs: dict[object, Knob] = {}
        for call, function in _launches(parsed.tree, kernels):
            kernel = kernels[_launched(call)]
            if not kernel.tunes_itself:
                _add_knobs(knobs, call, kernel, Scope(parsed.tree, function), parsed.source)
        return tunables_of(candidate, list(knobs.values()))


def _kernels(tree: ast.Module) -> dict[str, _Kernel]:
    found = {node.name: _Kernel(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {name: kernel for name, kernel in found.items() if kernel.is_kernel}


def _launched(call: ast.Call) -> str:
    target = call.func.value if isinstance(call.func, ast.Subscript) else None
    return target.id if isinstance(target, ast.Name) else ""


def _launches(tree: ast.Module, kernels: dict[str, _Kernel]) -> list[tuple[ast.Call, ast.AST | None]]:
    """Launch calls with the innermost function around each."""
    found: list[tuple[ast.Call, ast.AST | None]] = []

    def walk(node: ast.AST, function: ast.AST | None) -> None:
        for child in ast.iter_child_nodes(node):
            inner = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            if isinstance(child, ast.Call) and _launched(child) in kernels:
                found.append((child, function))
            walk(child, inner)

    walk(tree, None)
    return found


def _add_knobs(knobs: dict[object, Knob], call: ast.Call, kernel: _Kernel, scope: Scope, source: str) -> None:
    given = dict(zip(kernel.parameters, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    for name in (*kernel.parameters, *_OPTIONS):
        literal = scope.literal(given.get(name))
        if name in _OPTIONS:
            _add_option(knobs, name, literal, given, call, kernel, source)
        elif literal is not None and name in kernel.constexprs and _is_block(name, literal.value):
            assert isinstance(literal.value, int)
            place = place_of(literal, source)
            options = block_options(literal.value)
            knob = knobs.setdefault(place, Knob(f"{kernel.name}.{name}", literal.value, options, {place}))
            if isinstance(given[name], ast.Constant):
                # The grid may repeat the number instead of naming it: both must change together.
                knob.places |= _repeats(call, literal.value, source)


def _is_block(name: str, value: object) -> bool:
    return is_power_of_two(value) and bool(_BLOCK_NAME.search(name)) and not _NOT_BLOCK.search(name)


def _repeats(call: ast.Call, value: int, source: str) -> set[tuple[int, int]]:
    assert isinstance(call.func, ast.Subscript)
    return {
        place_of(node, source)
        for node in ast.walk(call.func.slice)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value == value
    }


def _add_option(
    knobs: dict[object, Knob],
    name: str,
    literal: ast.Constant | None,
    given: dict[str, ast.expr],
    call: ast.Call,
    kernel: _Kernel,
    source: str,
) -> None:
    default, options = _OPTIONS[name]
    if literal is not None and isinstance(literal.value, int):
        place = place_of(literal, source)
        knobs.setdefault(
            place, Knob(f"{kernel.name}.{name}", literal.value, sorted({*options, literal.value}), {place})
        )
    elif (
        name not in given and (name == "num_warps" or kernel.has_dot) and not any(k.arg is None for k in call.keywords)
    ):
        place = place_of(call, source)
        knob = knobs.setdefault(
            (kernel.name, name), Knob(f"{kernel.name}.{name}", default, list(options), keyword=name)
        )
        knob.add_to.add(place)
