"""cuTile: kernels marked ``ct.kernel``, launched as ``ct.launch(stream, grid, kernel, arguments)``."""

from __future__ import annotations

import ast

from tilecast.sandbox.languages.base import ParsedSource, Tunables, block_options, is_power_of_two
from tilecast.sandbox.languages.literals import Knob, Scope, place_of, tunables_of
from tilecast.sandbox.source import Candidate

_HINTS: dict[str, list[int]] = {"occupancy": [1, 2, 3, 4, 6, 8], "num_ctas": [1, 2, 4], "opt_level": [1, 2, 3]}
_LAUNCH_ARGUMENTS = 4
_LEAST_TILE = 8


class CuTile:
    """Host half of cuTile."""

    name = "cutile"
    title = "cuTile"

    def recognises(self, parsed: ParsedSource) -> bool:
        """Whether the text imports cuTile."""
        return parsed.imports_from("cuda.tile")

    def tunables(self, candidate: Candidate, parsed: ParsedSource) -> Tunables | None:
        """Tile sizes among the ``ct.Constant`` arguments of launches, and the hints of ``ct.kernel``."""
        kernels = _kernels(parsed.tree)
        knobs: dict[object, Knob] = {}
        for function in [None, *(n for n in ast.walk(parsed.tree) if isinstance(n, ast.FunctionDef))]:
            scope = Scope(parsed.tree, function)
            for call in _launches(function or parsed.tree, kernels):
                _add_tiles(knobs, call, kernels, scope, parsed.source)
        for node in kernels.values():
            _add_hints(knobs, node, parsed.source)
        return tunables_of(candidate, list(knobs.values()))


def _kernels(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(d).split("(")[0].endswith(".kernel") for d in node.decorator_list)
    }


def _launches(body: ast.AST, kernels: dict[str, ast.FunctionDef]) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "launch"
        and len(node.args) >= _LAUNCH_ARGUMENTS
        and isinstance(node.args[2], ast.Name)
        and node.args[2].id in kernels
        and isinstance(node.args[3], ast.Tuple)
    ]


def _add_tiles(
    knobs: dict[object, Knob], call: ast.Call, kernels: dict[str, ast.FunctionDef], scope: Scope, source: str
) -> None:
    name = call.args[2]
    given = call.args[3]
    assert isinstance(name, ast.Name) and isinstance(given, ast.Tuple)
    for parameter, value in zip(kernels[name.id].args.args, given.elts, strict=False):
        literal = scope.literal(value)
        constant = parameter.annotation is not None and "Constant" in ast.unparse(parameter.annotation)
        if literal is None or not constant or not is_power_of_two(literal.value):
            continue
        assert isinstance(literal.value, int)
        if literal.value < _LEAST_TILE:
            continue
        place = place_of(literal, source)
        knob = knobs.setdefault(
            place, Knob(f"{name.id}.{parameter.arg}", literal.value, block_options(literal.value), {place})
        )
        if isinstance(value, ast.Constant):
            knob.places |= {
                place_of(node, source)
                for node in ast.walk(call.args[1])
                if isinstance(node, ast.Constant) and type(node.value) is int and node.value == literal.value
            }


def _add_hints(knobs: dict[object, Knob], node: ast.FunctionDef, source: str) -> None:
    for decorator in node.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            value = keyword.value
            if keyword.arg in _HINTS and isinstance(value, ast.Constant) and type(value.value) is int:
                place = place_of(value, source)
                options = sorted({*_HINTS[keyword.arg], value.value})
                knobs[place] = Knob(f"{node.name}.{keyword.arg}", value.value, options, {place})
