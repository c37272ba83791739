"""A candidate of several files as one text, which is what the sandbox takes: imported modules are written in, names kept apart.

The text has the same definitions in the same order of execution; a name that two modules define gets its module's name before it.
What cannot be written so without changing its meaning is refused with the reason, never guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from tilecast.agent.ci.imports import Reach, SourceFile, top_level_names
from tilecast.agent.ci.native import put_in
from tilecast.agent.ci.normal import is_script_block

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class NotOneText(Exception):
    """Why a candidate cannot be written as one text."""


def one_text(reach: Reach) -> str:
    """The candidate's text with what it reaches in the repository written in; as it stands where it reaches nothing.

    Raises:
        NotOneText: naming file and construct.
    """
    text = reach.tree.read(reach.entry)
    if text is None:
        raise NotOneText(f"{reach.entry} is missing, too large, or no text")
    file = reach.files.get(reach.entry)
    if file is None or not (file.local_imports or reach.natives):
        return text
    try:
        return _Assembly(reach).text()
    except RecursionError:
        raise NotOneText(f"{reach.entry} is nested too deeply") from None


class _Assembly:
    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.order = _order(reach)
        self.final: dict[tuple[str, str], str] = {}
        """Name in the one text of each name of each module."""
        self._taken: dict[str, str] = {}
        entry = reach.files[reach.entry]
        # The entry's own names stay: ModelNew and CONFIG are found by them.
        for path in [reach.entry, *self.order]:
            self._name(reach.files[path], keep=path == entry.path)

    def _name(self, file: SourceFile, keep: bool) -> None:
        own = {name: f"{file.path}:{name}" for name in top_level_names(file.tree)} | _outside(file)
        for name, identity in sorted(own.items()):
            wanted, number = name, 1
            while not keep and self._taken.get(wanted, identity) != identity:
                stem = PurePosixPath(file.path).stem
                wanted = f"_{stem}_{name}" if number == 1 else f"_{stem}{number}_{name}"
                number += 1
            self._taken[wanted] = identity
            self.final[file.path, name] = wanted

    def lookup(self, module: str, name: str, depth: int = 0) -> str:
        """The name in the one text of ``module.name``, through re-exports.

        Raises:
            NotOneText: if the module has no such name, or it is a module.
        """
        if (module, name) in self.final:
            return self.final[module, name]
        file = self.reach.files.get(module)
        for binding in file.bindings if file is not None and depth < 32 else []:
            if binding.chain == (name,) and binding.attribute is not None:
                return self.lookup(binding.module, binding.attribute, depth + 1)
        for star in file.stars if file is not None and depth < 32 else []:
            try:
                return self.lookup(star, name, depth + 1)
            except NotOneText:
                continue
        raise NotOneText(f"{module} defines no name {name!r} at its top level")

    def text(self) -> str:
        """The whole."""
        future: dict[str, None] = {}
        lines: list[str] = []
        seen: set[str] = set()
        for path in [*self.order, self.reach.entry]:
            for node in self._body(self.reach.files[path]):
                line = ast.unparse(ast.fix_missing_locations(node))
                if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                    future[line] = None
                elif not isinstance(node, ast.Import | ast.ImportFrom) or line not in seen:
                    lines.append(line)
                    seen.add(line)
        return "\n".join([*future, *lines]) + "\n"

    def _body(self, file: SourceFile) -> list[ast.stmt]:
        module = put_in(file.tree, file.path, self.reach.tree)
        entry = file.path == self.reach.entry
        body = [node for node in module.body if entry or not (is_script_block(node) or _assigns_all(node))]
        module.body = body
        done: ast.Module = _Renamer(self, file).visit(module)
        if any(isinstance(node, ast.Name) and node.id == "__file__" for node in ast.walk(done)):
            raise NotOneText(f"{file.path} uses __file__ for more than reading a source beside it")
        return done.body


def _order(reach: Reach) -> list[str]:
    """Imported modules, each after those that it imports.

    Raises:
        NotOneText: for modules that import each other, or one that cannot be read.
    """
    done: dict[str, None] = {}

    def visit(path: str, above: tuple[str, ...]) -> None:
        if path in above:
            raise NotOneText(f"{path} and {above[-1]} import each other")
        if path in done:
            return
        file = reach.files.get(path)
        if file is None:
            raise NotOneText(f"{path} cannot be read as Python")
        for module in dict.fromkeys(file.modules):
            visit(module, (*above, path))
        done[path] = None

    visit(reach.entry, ())
    return [path for path in done if path != reach.entry]


def _outside(file: SourceFile) -> dict[str, str]:
    """Names that imports from the environment bind at the top level, with what they are."""
    found = {}
    for node in file.tree.body:
        if isinstance(node, ast.Import) and id(node) not in file.local_imports:
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                found[name] = f"import {alias.name if alias.asname else name}"
        elif isinstance(node, ast.ImportFrom) and id(node) not in file.local_imports:
            for alias in node.names:
                found[alias.asname or alias.name] = f"from {'.' * node.level}{node.module} import {alias.name}"
    return found


def _assigns_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)


class _Renamer(ast.NodeTransformer):
    """Writes final names into one module, minding what functions, classes and comprehensions bind themselves."""

    def __init__(self, assembly: _Assembly, file: SourceFile) -> None:
        self._assembly, self._file = assembly, file
        self._scopes: list[tuple[str, set[str]]] = []
        self._names = {name: new for (path, name), new in assembly.final.items() if path == file.path}
        self._modules: dict[tuple[str, ...], str] = {}
        for binding in file.bindings:
            if binding.attribute is None:
                self._modules[binding.chain] = binding.module
            else:
                self._names[binding.chain[0]] = assembly.lookup(binding.module, binding.attribute)
        for star in file.stars:
            for name in _public(assembly.reach.files[star]):
                self._names.setdefault(name, assembly.lookup(star, name))

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
            name = self._assembly.lookup(self._modules[chain[:-1]], chain[-1])
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


def _public(file: SourceFile) -> list[str]:
    names = top_level_names(file.tree) | _outside(file).keys()
    for node in file.tree.body:
        if isinstance(node, ast.Assign) and _assigns_all(node):
            try:
                return [str(name) for name in ast.literal_eval(node.value)]
            except ValueError:
                break
    more = {binding.chain[0] for binding in file.bindings if binding.attribute is not None}
    return sorted(name for name in names | more if not name.startswith("_"))
