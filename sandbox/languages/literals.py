"""Finds the integer literals that decide an argument, and writes others in their place with libcst."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilecast.sandbox.languages.base import Tunables
from tilecast.sandbox.source import Candidate, Config

if TYPE_CHECKING:
    import libcst as cst

Place = tuple[int, int]
"""Line from 1, column from 0 in characters."""


@dataclass
class Knob:
    """One tunable: where its literals stand, or the calls to which it must be added as a keyword."""

    name: str
    value: int
    options: list[Any]
    places: set[Place] = field(default_factory=set)
    add_to: set[Place] = field(default_factory=set)
    keyword: str = ""


def place_of(node: ast.expr, source: str) -> Place:
    """Where a node begins (ast counts UTF-8 bytes, libcst characters)."""
    line = source.splitlines()[node.lineno - 1]
    return node.lineno, len(line.encode()[: node.col_offset].decode(errors="ignore"))


class Scope:
    """Names that hold one integer literal: of the module, and of the function around a launch."""

    def __init__(self, tree: ast.Module, function: ast.AST | None) -> None:
        self._constants: dict[str, ast.Constant | None] = {}
        for body in (tree, function):
            if body is not None:
                self._read(body, tree)

    def _read(self, body: ast.AST, tree: ast.Module) -> None:
        nodes = body.body if body is tree and isinstance(body, ast.Module) else list(ast.walk(body))
        for node in nodes:
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
                targets = [node.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        self._note(name.id, node)

    def _note(self, name: str, node: ast.AST) -> None:
        value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
        single = isinstance(value, ast.Constant) and isinstance(value.value, int) and name not in self._constants
        # A name that is assigned twice, or computed, is nobody's literal.
        self._constants[name] = value if single and isinstance(value, ast.Constant) else None

    def literal(self, node: ast.expr | None) -> ast.Constant | None:
        """The literal that decides this expression: itself, or that of the name it is."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return node
        return self._constants.get(node.id) if isinstance(node, ast.Name) else None


def tunables_of(candidate: Candidate, knobs: list[Knob]) -> Tunables | None:
    """Knobs as tunables; None of none."""
    if not knobs:
        return None
    named = _names(knobs)
    values = {name: knob.value for name, knob in named.items()}

    def write(wanted: Config) -> Candidate:
        changes = [(named[name], int(value)) for name, value in wanted.items() if values[name] != value]
        return Candidate(name=candidate.name, source=rewrite(candidate.source, changes))

    return Tunables(values=dict(values), options={name: knob.options for name, knob in named.items()}, write=write)


def _names(knobs: list[Knob]) -> dict[str, Knob]:
    """Short names where they are unique, else with the kernel before them, else numbered too."""
    short = Counter(knob.name.rpartition(".")[2] for knob in knobs)
    named: dict[str, Knob] = {}
    for knob in knobs:
        tail = knob.name.rpartition(".")[2]
        name = base = tail if short[tail] == 1 else knob.name
        number = 1
        while name in named:
            number += 1
            name = f"{base}.{number}"
        named[name] = knob
    return named


def rewrite(source: str, changes: list[tuple[Knob, int]]) -> str:
    """The text with each knob's literals replaced, or its keyword added."""
    if not changes:
        return source
    import libcst as cst
    from libcst.metadata import MetadataWrapper

    replaced = {place: value for knob, value in changes for place in knob.places}
    added: dict[Place, list[tuple[str, int]]] = {}
    for knob, value in changes:
        for place in knob.add_to:
            added.setdefault(place, []).append((knob.keyword, value))
    wrapper = MetadataWrapper(cst.parse_module(source))
    return wrapper.visit(_rewriter(replaced, added)).code


def _rewriter(replaced: dict[Place, int], added: dict[Place, list[tuple[str, int]]]) -> cst.CSTTransformer:
    import libcst as cst
    from libcst.metadata import PositionProvider

    class Rewriter(cst.CSTTransformer):
        METADATA_DEPENDENCIES = (PositionProvider,)

        def _place(self, node: cst.CSTNode) -> Place:
            start = self.get_metadata(PositionProvider, node).start
            return start.line, start.column

        def leave_Integer(self, original_node: cst.Integer, updated_node: cst.Integer) -> cst.Integer:
            value = replaced.get(self._place(original_node))
            return updated_node if value is None else updated_node.with_changes(value=str(value))

        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            extra = added.get(self._place(original_node), [])
            # A call begins where what it calls begins: only the one with a subscript is the launch.
            if not extra or not isinstance(original_node.func, cst.Subscript):
                return updated_node
            equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
            arguments = [
                cst.Arg(keyword=cst.Name(name), value=cst.Integer(str(value)), equal=equal) for name, value in extra
            ]
            return updated_node.with_changes(args=[*updated_node.args, *arguments])

    return Rewriter()
