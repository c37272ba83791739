"""Final names written into one module, minding what functions, classes and comprehensions bind themselves."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tilecast.agent.ci.imports import SourceFile

Lookup = Callable[[str, str], str]
"""The final name of ``module.name``."""


class NotOneText(Exception):
    """Why a candidate cannot be written as one text."""


class Renamer(ast.NodeTransformer):
    """Renames in one module.

    Args:
        file: the module.
        names: final names of its own names, and of those that it imports from other modules of the repository.
        lookup: final names of what it reaches through a module (``rows.kernel``).
    """

    def __init__(self, file: SourceFile, names: Mapping[str, str], lookup: Lookup) -> None:
        self._file, self._names, self._lookup = file, names, lookup
        self._scopes: list[tuple[str, set[str]]] = []
        self._modules = {b.chain: b.module for b in file.bindings if b.attribute is None}

    def _shadowed(self, name: str) -> bool:
        inner = len(self._scopes) - 1
        return any(
            name in bound and (kind == "function" or at == inner) for at, (kind, bound) in enumerate(self._scopes)
        )

    @contextmanager
    def _scope(self, kind: str, bound: set[str]) -> Iterator[None]:
        self._scopes.append((kind, bound))
        try:
            yield
        finally:
            self._scopes.pop()

    def _new(self, name: str) -> str:
        return name if self._shadowed(name) else self._names.get(name, name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if (node.id,) in self._modules and not self._shadowed(node.id):
            raise NotOneText(f"{self._file.path}:{node.lineno} uses the module {node.id} itself, not a name in it")
        return ast.copy_location(ast.Name(self._new(node.id), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        chain = _chain(node)
        if chain and not self._shadowed(chain[0]) and chain[:-1] in self._modules:
            if not isinstance(node.ctx, ast.Load):
                raise NotOneText(f"{self._file.path}:{node.lineno} assigns to a name of another module")
            name = self._lookup(self._modules[chain[:-1]], chain[-1])
            return ast.copy_location(ast.Name(name, node.ctx), node)
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        if id(node) in self._file.local_imports:
            return self._nothing(node)
        if not self._scopes:
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                if self._new(name) != name:
                    if not alias.asname and "." in alias.name:
                        raise NotOneText(
                            f"{self._file.path}:{node.lineno}: {name} means something else in another module"
                        )
                    alias.asname = self._new(name)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if id(node) in self._file.local_imports:
            return self._nothing(node)
        if node.level:
            raise NotOneText(f"{self._file.path}:{node.lineno} imports a neighbour that is not in the repository")
        if not self._scopes:
            for alias in node.names:
                name = alias.asname or alias.name
                if self._new(name) != name:
                    alias.asname = self._new(name)
        return node

    def _nothing(self, node: ast.stmt) -> ast.AST | None:
        # A block must not be left empty.
        return ast.copy_location(ast.Pass(), node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._names.get(name, name) for name in node.names]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        node.decorator_list = [self.visit(item) for item in node.decorator_list]
        self._outer_parts(node.args)
        node.returns = self.visit(node.returns) if node.returns else None
        with self._scope("function", bound_in(node, self._file.local_imports)):
            node.body = [self.visit(item) for item in node.body]
        return node

    def _outer_parts(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.visit(item) for item in arguments.defaults]
        arguments.kw_defaults = [None if item is None else self.visit(item) for item in arguments.kw_defaults]
        for item in _arguments(arguments):
            item.annotation = self.visit(item.annotation) if item.annotation else None

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._outer_parts(node.args)
        with self._scope("function", {item.arg for item in _arguments(node.args)}):
            node.body = self.visit(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._new(node.name)
        for part in ("decorator_list", "bases", "keywords"):
            setattr(node, part, [self.visit(item) for item in getattr(node, part)])
        with self._scope("class", bound_in(node, self._file.local_imports)):
            node.body = [self.visit(item) for item in node.body]
        return node

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> ast.AST:
        bound = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        with self._scope("function", bound):
            return self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def bound_in(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, local_imports: set[int]) -> set[str]:
    """Names that a function or class body binds itself; imports that are written in bind none."""
    bound = set() if isinstance(node, ast.ClassDef) else {item.arg for item in _arguments(node.args)}
    declared: set[str] = set()
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(part.name)
            continue
        if isinstance(part, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            bound.add(part.id)
        elif isinstance(part, ast.Global | ast.Nonlocal):
            declared |= set(part.names)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            if id(part) not in local_imports:
                bound |= {alias.asname or alias.name.split(".")[0] for alias in part.names}
        elif isinstance(part, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and part.name:
            bound.add(part.name)
        waiting += ast.iter_child_nodes(part)
    return bound - declared


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    more = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more]


def _chain(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        inner = _chain(node.value)
        return (*inner, node.attr) if inner else ()
    return ()
