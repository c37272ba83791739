"""Text without what cannot change a kernel: comments, formatting, docstrings. Two texts with one key compile to the same."""

from __future__ import annotations

import ast
import hashlib
import re

NATIVE = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".hip")
"""Endings of C++ and CUDA sources."""
_PIECES = re.compile(
    r'(?P<raw>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))"
    r"|(?P<directive>^[ \t]*\#)"
    r"|(?P<newline>\n)|(?P<space>[ \t\r\f\v]+)|(?P<word>\w+)|(?P<sign>.)",
    re.S | re.M,
)
_BY_NAME = frozenset({"globals", "locals", "vars", "eval", "exec", "__import__"})
"""Who uses one of these may reach any definition by a name that stands nowhere."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HARMLESS = re.compile(r"\b(jit|autotune|heuristics|kernel|dataclass|cache|lru_cache|compile|no_grad)\b")
"""Decorators that do nothing but to what they decorate; another one may register it somewhere."""


def text_key(text: str, path: str) -> str:
    """Key of a file's meaning by its kind; of every character where the kind is not known or the text does not parse."""
    if path.endswith(".py"):
        return python_key(text)
    return _digest(c_tokens(text) if path.endswith(NATIVE) else text)


def python_key(text: str, roots: tuple[str, ...] = ()) -> str:
    """Key of a Python text: its syntax without docstrings, and C++ in its strings without comments.

    With ``roots`` (names of what is used from outside), definitions that nothing reachable from them mentions are left out.
    """
    try:
        tree = ast.parse(text)
        if roots:
            tree.body = _used(tree.body, set(roots))
        if "__doc__" not in text:
            tree = _Plain().visit(tree)
        return _digest(ast.dump(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _digest(text)


def c_tokens(text: str) -> str:
    """C++ as one space between tokens; line ends stay only around preprocessor lines, where they mean something."""
    text = text.replace("\\\n", " ")
    tokens: list[str] = []
    in_directive = False
    for piece in _PIECES.finditer(text):
        kind, token = piece.lastgroup, piece.group()
        if kind == "mark":
            kind = "raw"
        if kind == "directive":
            in_directive = True
            tokens += ["\n", "#"]
        elif kind == "newline":
            if in_directive:
                tokens.append("\n")
            in_directive = False
        elif kind == "space":
            # `#define F (x)` and `#define F(x)` differ by it.
            if in_directive:
                tokens.append(" ")
        elif kind != "comment":
            tokens.append(token)
        elif in_directive:
            tokens.append(" ")
    joined = " ".join(token for token in tokens)
    return re.sub(r" *\n[ \n]*", "\n", re.sub(r" {4,}", "   ", joined)).strip()


class _Plain(ast.NodeTransformer):
    """Drops docstrings and the block that runs only as a script; C++ in strings keeps its tokens only."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = [item for item in node.body if not is_script_block(item)]
        return self._body(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._body(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and ("__global__" in node.value or "#include" in node.value):
            return ast.Constant(c_tokens(node.value))
        return ast.Constant(node.value)

    def _body(self, node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def is_script_block(node: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and "__name__" in {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}


def _used(body: list[ast.stmt], roots: set[str]) -> list[ast.stmt]:
    """The statements that matter: all but definitions whose names nothing that matters mentions.

    A name counts as mentioned wherever it stands, also as an attribute or inside a string: that errs towards keeping. Where
    names are made up at run time, everything matters.
    """
    rest = [item for item in body if not is_script_block(item)]
    if any(_makes_names(item) for item in rest):
        return rest
    waiting = [item for item in rest if isinstance(item, _DEFINITIONS) and _droppable(item)]
    kept = [item for item in rest if item not in waiting]
    words = set(roots).union(*(_words(item) for item in kept))
    while found := [item for item in waiting if item.name in words]:
        waiting = [item for item in waiting if item.name not in words]
        words |= set().union(*(_words(item) for item in found))
        kept += found
    return [item for item in rest if item in kept]


def _makes_names(node: ast.AST) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in _BY_NAME:
            return True
        asks = isinstance(part, ast.Call) and getattr(part.func, "id", "") == "getattr" and len(part.args) > 1
        if asks and isinstance(part, ast.Call) and not isinstance(part.args[1], ast.Constant):
            return True
    return False


def _droppable(item: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    if item.name.startswith("__"):
        # Python itself calls it.
        return False
    return all(_HARMLESS.search(ast.unparse(decorator)) for decorator in item.decorator_list)


def _words(node: ast.AST) -> set[str]:
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            found |= set(re.findall(r"\w+", part.value))
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
