"""Which files of a repository a Python text reaches: its imports, and the C++ and CUDA files that it names."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tilecast.agent.ci.git import Tree
from tilecast.agent.ci.normal import NATIVE

EXTERNAL = frozenset({"torch", "triton", "numpy", "cuda", "cupy", "tilecast", "pytest"}) | sys.stdlib_module_names
"""Packages that come from the environment, whatever lies in the repository."""
MOST_FILES = 400
"""A candidate that reaches more files is not one that the sandbox could be given."""


@dataclass(frozen=True)
class Binding:
    """One name that an import of a repository's file brings: ``attribute`` of a module, or (None) the module itself.

    ``chain`` is how the module is spelled where it is used: ``("pkg", "rows")`` after ``import pkg.rows``.
    """

    chain: tuple[str, ...]
    module: str
    attribute: str | None


@dataclass
class SourceFile:
    """A Python file that was read: its tree, what its imports bind, the modules and the other files that it reaches."""

    path: str
    tree: ast.Module
    bindings: list[Binding] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    local_imports: set[int] = field(default_factory=set)
    """``id`` of the import statements that are answered by the repository."""
    modules: list[str] = field(default_factory=list)
    natives: set[str] = field(default_factory=set)


class Reach:
    """Everything that one candidate reaches in one commit."""

    def __init__(self, tree: Tree, entry: str) -> None:
        self.tree, self.entry = tree, entry
        self.files: dict[str, SourceFile] = {}
        self.natives: set[str] = set()
        self.unreadable: set[str] = set()
        self._follow(entry)

    @property
    def paths(self) -> set[str]:
        """Every file that is reached, the candidate's own included."""
        return {self.entry, *self.files, *self.natives, *self.unreadable}

    def _follow(self, entry: str) -> None:
        waiting = [entry]
        while waiting and len(self.files) < MOST_FILES:
            path = waiting.pop()
            if path in self.files or path in self.unreadable:
                continue
            parsed = _parse(self.tree.read(path))
            if parsed is None:
                self.unreadable.add(path)
                continue
            file = self.files[path] = _described(SourceFile(path, parsed), self.tree)
            waiting += file.modules
            self._follow_includes(file.natives)

    def _follow_includes(self, natives: set[str]) -> None:
        waiting = list(natives)
        while waiting:
            path = waiting.pop()
            if path not in self.natives:
                self.natives.add(path)
                waiting += includes(self.tree.read(path) or "", path, self.tree).values()


def _parse(text: str | None) -> ast.Module | None:
    try:
        return None if text is None else ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _OneName(ast.NodeTransformer):
    """Makes ``import a, b`` two statements, so that each is answered by the repository or is not."""

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [ast.copy_location(ast.Import([alias]), node) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        return [ast.copy_location(ast.ImportFrom(node.module, [alias], node.level), node) for alias in node.names]


def _described(file: SourceFile, tree: Tree) -> SourceFile:
    file.tree = _OneName().visit(file.tree)
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            _plain_import(file, node, tree)
        elif isinstance(node, ast.ImportFrom):
            _from_import(file, node, tree)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(NATIVE):
            found = beside(node.value, file.path, tree)
            if found is not None:
                file.natives.add(found)
    return file


def _plain_import(file: SourceFile, node: ast.Import, tree: Tree) -> None:
    for alias in node.names:
        module = resolve(alias.name, 0, file.path, tree)
        if module is not None:
            chain = (alias.asname,) if alias.asname else tuple(alias.name.split("."))
            file.bindings.append(Binding(chain, module, None))
            file.modules.append(module)
            file.local_imports.add(id(node))


def _from_import(file: SourceFile, node: ast.ImportFrom, tree: Tree) -> None:
    package = resolve(node.module or "", node.level, file.path, tree)
    for alias in node.names:
        name = alias.asname or alias.name
        if alias.name == "*":
            if package is not None:
                file.stars.append(package)
                file.modules.append(package)
                file.local_imports.add(id(node))
            continue
        submodule = resolve(f"{node.module}.{alias.name}" if node.module else alias.name, node.level, file.path, tree)
        if submodule is not None and not _defines(package, alias.name, tree):
            file.bindings.append(Binding((name,), submodule, None))
            file.modules.append(submodule)
        elif package is not None:
            file.bindings.append(Binding((name,), package, alias.name))
            file.modules.append(package)
        else:
            continue
        file.local_imports.add(id(node))


def _defines(package: str | None, name: str, tree: Tree) -> bool:
    """Whether a package's own text binds a name at its top level: that wins over a submodule of the same name."""
    parsed = _parse(tree.read(package)) if package is not None else None
    return parsed is not None and name in top_level_names(parsed)


def top_level_names(module: ast.Module) -> set[str]:
    """Names that a module binds at its top level by definition or assignment (imports aside)."""
    found: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found


def resolve(module: str, level: int, importer: str, tree: Tree) -> str | None:
    """The file of a module as ``importer`` would find it, or None if the repository has none.

    An absolute name is looked for beside the importer and in each folder above it (and in ``src`` there), nearest first.
    """
    parts = [part for part in module.split(".") if part]
    folder = PurePosixPath(importer).parent
    if level:
        for _ in range(level - 1):
            folder = folder.parent
        return _module_file(folder, parts, tree)
    if not parts or parts[0] in EXTERNAL:
        return None
    for place in (folder, *folder.parents):
        for root in (place, place / "src"):
            found = _module_file(root, parts, tree)
            if found is not None and found != importer:
                return found
    return None


def _module_file(root: PurePosixPath, parts: list[str], tree: Tree) -> str | None:
    at = root.joinpath(*parts)
    names = [f"{at}.py", f"{at}/__init__.py"] if parts else [f"{at}/__init__.py"]
    return next((name.removeprefix("./") for name in names if name.removeprefix("./") in tree), None)


def beside(name: str, importer: str, tree: Tree) -> str | None:
    """A file named in a text: relative to it, else by the same ending in its folder or below, else from the root."""
    folder = PurePosixPath(importer).parent
    pure = PurePosixPath(name.replace("\\", "/").lstrip("/"))
    if ".." in pure.parts:
        return None
    for place in (folder, *folder.parents):
        path = str(place / pure).removeprefix("./")
        if path in tree:
            return path
    prefix = "" if str(folder) == "." else f"{folder}/"
    below = sorted(path for path in tree.entries if path.startswith(prefix) and path.endswith(f"/{pure}"))
    return below[0] if below else None


def includes(text: str, path: str, tree: Tree) -> dict[str, str]:
    """``#include "name"`` lines of a C++ text that the repository answers: name -> path."""
    found = {}
    for line in text.splitlines():
        stripped = line.strip().removeprefix("#").strip()
        if line.strip().startswith("#") and stripped.startswith('include "'):
            name = stripped.removeprefix('include "').partition('"')[0]
            target = _relative(name, path, tree)
            if target is not None:
                found[name] = target
    return found


def _relative(name: str, path: str, tree: Tree) -> str | None:
    parts: list[str] = list(PurePosixPath(path).parent.parts)
    for part in PurePosixPath(name).parts:
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part != ".":
            parts.append(part)
    target = "/".join(parts)
    return target if target in tree else beside(name, path, tree)
