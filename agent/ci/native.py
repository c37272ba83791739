"""C++ and CUDA files that a Python text reads or builds, put into it as strings: the sandbox is given one text alone."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from tilecast.agent.ci.git import Tree
from tilecast.agent.ci.imports import beside, includes

_SAME = {"str", "Path", "PurePath", "fspath", "abspath", "realpath", "resolve", "absolute", "expanduser", "normpath"}
_CUDA = (".cu", ".cuh", ".hip")
_INCLUDE_DEPTH = 16


def put_in(module: ast.Module, path: str, tree: Tree) -> ast.Module:
    """The module with texts in place of the reading and building of files that the repository holds."""
    filler = _Filler(path, tree)
    for node in module.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = filler.place(node.value)
            if value is not None:
                filler.known[node.targets[0].id] = value
    made: ast.Module = filler.visit(module)
    if filler.inline:
        helper = ast.ImportFrom("torch.utils.cpp_extension", [ast.alias("load_inline", "_load_inline")], 0)
        made.body.insert(0, helper)
    _drop_places(made, filler)
    return ast.fix_missing_locations(made)


def _drop_places(module: ast.Module, filler: _Filler) -> None:
    """Leave out names of paths that nothing uses any more: they are made of ``__file__``, which means nothing elsewhere."""
    while True:
        used = {n.id for n in ast.walk(module) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        kept = [item for item in module.body if not filler.is_place(item) or _bound(item) in used]
        if len(kept) == len(module.body):
            return
        module.body = kept


def _bound(node: ast.stmt) -> str:
    return str(getattr(node.targets[0], "id", "")) if isinstance(node, ast.Assign) else ""


class _Filler(ast.NodeTransformer):
    def __init__(self, path: str, tree: Tree) -> None:
        self.path, self.tree = path, tree
        self.known: dict[str, str] = {}
        self.inline = False
        self._open: dict[str, str] = {}

    def is_place(self, node: ast.stmt) -> bool:
        """Whether a statement does nothing but name a path."""
        return (
            isinstance(node, ast.Assign)
            and not isinstance(node.value, ast.Constant)
            and isinstance(node.targets[0], ast.Name)
            and not isinstance(node.value, ast.Name)
            and self.place(node.value) is not None
        )

    def place(self, node: ast.expr) -> str | None:
        """The path that an expression stands for: ``/…`` from the repository's root, else as it is written."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return f"/{self.path}" if node.id == "__file__" else self.known.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            inner = self.place(node.value)
            return None if inner is None else str(PurePosixPath(inner).parent)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add):
            left, right = self.place(node.left), self.place(node.right)
            if left is None or right is None:
                return None
            return left + right if isinstance(node.op, ast.Add) else str(PurePosixPath(left) / right)
        return self._called(node) if isinstance(node, ast.Call) else None

    def _called(self, node: ast.Call) -> str | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        on = (
            self.place(of)
            if of is not None and name in {"resolve", "absolute", "with_name", "with_suffix", "joinpath"}
            else None
        )
        given = [self.place(argument) for argument in node.args]
        if any(item is None for item in given):
            return None
        texts = [item for item in given if item is not None]
        if on is not None:
            pure = PurePosixPath(on)
            if name in _SAME:
                return on
            if name == "joinpath":
                return str(pure.joinpath(*texts))
            return str(pure.with_name(texts[0]) if name == "with_name" else pure.with_suffix(texts[0]))
        if name == "dirname" and len(texts) == 1:
            return str(PurePosixPath(texts[0]).parent)
        if name == "join" and texts:
            return str(PurePosixPath(*texts))
        return str(PurePosixPath(*texts)) if name in _SAME and texts else None

    def text(self, node: ast.expr) -> tuple[str, str] | None:
        """Path and text of the file that an expression names, its own includes put in."""
        place = self.place(node)
        if place is None:
            return None
        path = place.lstrip("/") if place.startswith("/") else beside(place, self.path, self.tree)
        found = None if path is None or path not in self.tree else self.tree.read(path)
        return None if path is None or found is None else (path, with_includes(found, path, self.tree))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        read = self._read(node)
        if read is not None:
            return ast.Constant(read)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "load":
            built = self._built(node)
            if built is not None:
                return built
        return self.generic_visit(node)

    def _read(self, node: ast.Call) -> str | None:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("read", "read_text"):
            return None
        of = node.func.value
        if node.func.attr == "read" and isinstance(of, ast.Name):
            return self._open.get(of.id)
        opened = isinstance(of, ast.Call) and getattr(of.func, "id", "") == "open" and of.args
        found = self.text(of.args[0] if opened and isinstance(of, ast.Call) else of)
        return None if found is None else found[1]

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        item = node.items[0]
        call, name = item.context_expr, item.optional_vars
        if len(node.items) == 1 and isinstance(call, ast.Call) and isinstance(name, ast.Name) and call.args:
            opens = getattr(call.func, "id", getattr(call.func, "attr", "")) == "open"
            of = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
            found = self.text(of) if opens else None
            if found is not None:
                self._open[name.id] = found[1]
                return [self.visit(part) for part in node.body]
        return self.generic_visit(node)

    def _built(self, node: ast.Call) -> ast.Call | None:
        """``load(name, sources=[files])`` as ``load_inline`` of their texts."""
        given = dict(zip(("name", "sources"), node.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        sources = given.pop("sources", None)
        items = sources.elts if isinstance(sources, ast.List | ast.Tuple) else [sources] if sources else []
        texts = [self.text(item) for item in items]
        found = [text for text in texts if text is not None]
        if not found or len(found) != len(texts):
            return None
        self.inline = True
        given.pop("extra_include_paths", None)
        cpp: list[ast.expr] = [ast.Constant(text) for path, text in found if not path.endswith(_CUDA)]
        cuda: list[ast.expr] = [ast.Constant(text) for path, text in found if path.endswith(_CUDA)]
        given |= {"cpp_sources": ast.List(cpp, ast.Load()), "cuda_sources": ast.List(cuda, ast.Load())}
        keywords = [ast.keyword(name, value) for name, value in given.items()]
        return ast.Call(ast.Name("_load_inline", ast.Load()), [], keywords)


def with_includes(text: str, path: str, tree: Tree, seen: frozenset[str] = frozenset()) -> str:
    """A C++ text with the repository's own headers in place of their ``#include`` lines, each once."""
    found = includes(text, path, tree)
    if not found or len(seen) > _INCLUDE_DEPTH:
        return text
    lines, done = [], set(seen) | {path}
    for line in text.split("\n"):
        name = line.strip().removeprefix("#").strip().removeprefix('include "').partition('"')[0]
        target = found.get(name) if line.strip().startswith("#") else None
        if target is None:
            lines.append(line)
        elif target not in done:
            inner = with_includes(tree.read(target) or "", target, tree, frozenset(done))
            lines.append(inner.replace("#pragma once", ""))
            done.add(target)
    return "\n".join(lines)
