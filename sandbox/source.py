"""A candidate as text: its CONFIG and SPACE, the CONFIG written in, and the hash that names it. Never executed here."""

from __future__ import annotations

import ast
import hashlib
import json
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import CandidateError
from tilecast.sandbox.hints import nearest, no_such_file
from tilecast.sandbox.schema import Document

Config = dict[str, Any]
_PARSING = threading.Lock()
REMEMBERED = 1024
"""Texts whose identity is remembered: those at hand, not all of a long run."""


class Candidate(Document):
    """One candidate's text with the CONFIG in force written in. ``name`` is for people; ``sha256`` identifies it."""

    name: str
    source: str

    @property
    def sha256(self) -> str:
        """Hash of the text with the CONFIG in force written in."""
        return source_sha256(self.source)

    @property
    def config(self) -> Config | None:
        """The module-level CONFIG, or None where there is none."""
        return read_literal(self.source, "CONFIG")

    @property
    def space(self) -> dict[str, list[Any]] | None:
        """The module-level SPACE, or None where there is none."""
        return read_literal(self.source, "SPACE")

    def with_config(self, overrides: Config) -> Candidate:
        """The same candidate with some CONFIG values replaced (see :func:`with_config`)."""
        return Candidate(name=self.name, source=with_config(self.source, overrides))


def space_notes(candidate: Candidate) -> list[str]:
    """What does not fit together in a candidate's CONFIG and SPACE, a line each; nothing of it is an error."""
    config, notes = candidate.config or {}, []
    for name, values in (candidate.space or {}).items():
        if name not in config:
            close = nearest(name, config)
            meant = "" if close is None else f" (did you mean {close!r}?)"
            notes.append(
                f"{candidate.name}: SPACE names {name!r}, which CONFIG does not have{meant}: its values change nothing"
            )
        elif isinstance(values, list) and config[name] not in values:
            allowed = ", ".join(map(repr, values))
            notes.append(f"{candidate.name}: CONFIG has {name}={config[name]!r}, which is not among SPACE's {allowed}")
    return notes


def load_candidate(path: str | Path) -> Candidate:
    """Read a candidate file.

    Raises:
        CandidateError: if there is no such file or it is not UTF-8 text.
    """
    file = Path(path)
    if not file.exists():
        raise CandidateError(no_such_file(file))
    try:
        return Candidate(name=file.stem, source=file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CandidateError(f"{file}: cannot be read: {error}") from error


def source_sha256(source: str) -> str:
    """SHA-256 of the UTF-8 text, in hex."""
    return hashlib.sha256(source.encode()).hexdigest()


def parsed(source: str) -> ast.Module:
    """The syntax tree of a text, one text at a time.

    Two threads that parse at once can fail in CPython 3.11 ("AST constructor recursion depth mismatch"): the depth is kept
    once for the interpreter, and a collection of garbage in between may let the other thread run.

    Raises:
        SyntaxError, ValueError: if it is no Python, or nested more deeply than the parser can follow.
    """
    with _PARSING:
        try:
            return ast.parse(source)
        except (RecursionError, MemoryError) as error:
            raise ValueError("nested too deeply for Python's parser") from error


def check_parses(source: str, path: str | Path, subject: str = "") -> None:
    """See that a user's file is Python before anything is done with it; ``subject`` says what it is.

    Raises:
        CandidateError: naming the line, where there is one.
    """
    try:
        parsed(source)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        place = f"{path}:{line}" if line else f"{path}"
        what = f"{subject} does not parse".lstrip()
        raise CandidateError(f"{place}: {what}: {getattr(error, 'msg', error)}") from error


def check_defines_model(source: str, path: str | Path) -> None:
    """See that a text which parses has a ``ModelNew`` at module level, where nothing will be run that would find out.

    Raises:
        CandidateError: naming the file.
    """
    if not _may_bind(parsed(source), "ModelNew"):
        raise CandidateError(f"{path}: the file defines no `class ModelNew(nn.Module)`")


def _may_bind(tree: ast.Module, name: str) -> bool:
    """Whether running a module's statements may bind the name: as a class, by assignment or import, or by ``import *``."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound = node.name == name
        elif isinstance(node, ast.alias):
            bound = (node.asname or node.name) in (name, "*")
        else:
            bound = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name
            left += ast.iter_child_nodes(node)
        if bound:
            return True
    return False


def _assignment(source: str, name: str) -> ast.expr | None:
    """Value of the last module-level ``name = …``, or None if the text does not parse or does not assign it."""
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return None
    value: ast.expr | None = None
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = node.value
    return value


def read_literal(source: str, name: str) -> dict[str, Any] | None:
    """A module-level dict literal by name; None where it is missing or no literal."""
    node = _assignment(source, name)
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else None


def with_config(source: str, overrides: Config) -> str:
    """The text with CONFIG replaced by itself updated with ``overrides``; every other character stays.

    Raises:
        CandidateError: if overrides are given and the text has no CONFIG dict literal.
    """
    config = read_literal(source, "CONFIG")
    if config is None:
        if not overrides:
            return source
        raise CandidateError("the kernel has no module-level CONFIG dict literal to change")
    merged = {**config, **overrides}
    if merged == config:
        return source
    node = _assignment(source, "CONFIG")
    assert node is not None and node.end_lineno is not None and node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    # ast counts columns in UTF-8 bytes.
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    raw = source.encode()
    return (raw[:start] + repr(merged).encode() + raw[end:]).decode()


@lru_cache(maxsize=REMEMBERED)
def canonical_key(source: str) -> str:
    """Identity of a candidate up to comments, whitespace and the order of CONFIG's keys: how recorded ones are found."""
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return "text:" + source_sha256(source)
    config = read_literal(source, "CONFIG")
    if config is not None:
        for node in tree.body:
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "CONFIG" for t in node.targets):
                node.value = ast.Constant(value=None)
    try:
        plain = ast.unparse(tree)
    except RecursionError:
        return "text:" + source_sha256(source)
    text = plain + "\n#CONFIG " + json.dumps(config, sort_keys=True, default=repr)
    return "tree:" + source_sha256(text)
