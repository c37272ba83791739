"""Which kernels a change reaches: both versions as one text each, compared after normalising. Reads, never runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal

from tilecast.agent.ci.configured import KernelSpec, kernels_at
from tilecast.agent.ci.flatten import one_text
from tilecast.agent.ci.git import FileChange, Git, Tree
from tilecast.agent.ci.imports import Reach
from tilecast.agent.ci.normal import python_key, text_key
from tilecast.agent.ci.renaming import NotOneText
from tilecast.agent.ci.schema import cut
from tilecast.sandbox.errors import ProblemError, UsageError
from tilecast.sandbox.problem import Problem, ProblemExtras, check_problem_source
from tilecast.sandbox.source import Candidate

CANDIDATE_ROOTS = ("ModelNew", "CONFIG", "SPACE")

Kind = Literal["changed", "problem", "added", "removed", "beyond"]
"""``problem``: only what it is checked against changed. ``beyond``: only files that its ``paths`` name."""


@dataclass(frozen=True)
class Version:
    """One kernel in one commit. ``candidate`` is None where it cannot be written as one text, ``refused`` says why."""

    spec: KernelSpec
    candidate: Candidate | None
    problem: Problem | None
    key: str
    problem_key: str
    reached: frozenset[str]
    refused: str = ""
    parts: int = 1
    """Files that the text was put together from."""


@dataclass(frozen=True)
class KernelChange:
    """One kernel that the change reaches, before and after."""

    name: str
    kind: Kind
    base: Version | None
    head: Version | None
    files: list[str] = field(default_factory=list)
    """Changed files through which it is reached."""


@dataclass(frozen=True)
class Compared:
    """The answer: kernels reached, how many there are, how many files changed."""

    base: str
    head: str
    kernels: list[KernelChange]
    known: int
    files: int


def find_changes(git: Git, base: str, head: str, prefix: str = "") -> Compared:
    """Kernels that differ between two commits.

    Raises:
        UsageError: for a configuration that cannot be used.
    """
    with git.blobs() as blobs:
        before, after = git.tree(base).using(blobs), git.tree(head).using(blobs)
        changes = git.changes(base, head)
        pairs = _pairs(_kernels_before(before, prefix), kernels_at(after, prefix), changes)
        touched = {path for change in changes for path in (change.old, change.new) if path is not None}
        renamed = {change.old for change in changes if change.old != change.new}
        found = []
        for old, new in pairs:
            moved = old is not None and new is not None and old.candidate in renamed
            change = _compare(old, new, before, after, touched) if changes or moved else None
            if change is not None:
                found.append(change)
        return Compared(base, head, found, len(pairs), len(changes))


def _kernels_before(tree: Tree, prefix: str) -> list[KernelSpec]:
    """Base's kernels; none where its configuration cannot be used, which is not this change's doing."""
    try:
        return kernels_at(tree, prefix)
    except UsageError:
        return []


def _pairs(
    old: list[KernelSpec], new: list[KernelSpec], changes: list[FileChange]
) -> list[tuple[KernelSpec | None, KernelSpec | None]]:
    """Each kernel before and after: by name, else by where git says its file went, else by its problem."""
    moved = {change.old: change.new for change in changes if change.old and change.new}
    left = {spec.name: spec for spec in old}
    pairs: list[tuple[KernelSpec | None, KernelSpec | None]] = []
    waiting = []
    for spec in new:
        if spec.name in left:
            pairs.append((left.pop(spec.name), spec))
        else:
            waiting.append(spec)
    for spec in waiting:
        same = [o for o in left.values() if moved.get(o.candidate, o.candidate) == spec.candidate]
        same = same or [o for o in left.values() if moved.get(o.problem, o.problem) == spec.problem]
        pairs.append((left.pop(same[0].name) if same else None, spec))
    return pairs + [(spec, None) for spec in left.values()]


def _compare(
    old: KernelSpec | None, new: KernelSpec | None, before: Tree, after: Tree, touched: set[str]
) -> KernelChange | None:
    spec = new or old
    assert spec is not None
    if not touched & {s.candidate for s in (old, new) if s} and not _reached(old, new, before, after, touched):
        return None
    base = _version(old, before) if old is not None else None
    head = _version(new, after) if new is not None else None
    files = sorted(touched & ((base.reached if base else frozenset()) | (head.reached if head else frozenset())))
    named = sorted(path for path in touched if _matches(path, spec.settings.paths))
    if base is None or head is None:
        if base is None and head is None:
            return None
        return KernelChange(spec.name, "added" if base is None else "removed", base, head, files)
    if base.key != head.key:
        return KernelChange(spec.name, "changed", base, head, files)
    if base.problem_key != head.problem_key:
        return KernelChange(spec.name, "problem", base, head, files)
    beyond = [path for path in named if _key_at(before, path) != _key_at(after, path)]
    return KernelChange(spec.name, "beyond", base, head, beyond) if beyond else None


def _reached(old: KernelSpec | None, new: KernelSpec | None, before: Tree, after: Tree, touched: set[str]) -> bool:
    """Whether a changed file is among those that either version reaches; reads only what they reach."""
    for spec, tree in ((old, before), (new, after)):
        if spec is None:
            continue
        paths = Reach(tree, spec.candidate).paths | Reach(tree, spec.problem).paths | {_extras_path(spec)}
        if touched & paths or any(_matches(path, spec.settings.paths) for path in touched):
            return True
    return False


def _version(spec: KernelSpec, tree: Tree) -> Version | None:
    """A kernel in one commit; None if its file is not there."""
    if spec.candidate not in tree:
        return None
    reach, of_problem = Reach(tree, spec.candidate), Reach(tree, spec.problem)
    refused, candidate, problem = "", None, None
    try:
        candidate = Candidate(name=cut(spec.name), source=one_text(reach))
        problem = _problem(spec, tree, of_problem)
    except (NotOneText, ProblemError) as error:
        refused = str(error)
    return Version(
        spec=spec,
        candidate=candidate,
        problem=problem,
        key=python_key(candidate.source, CANDIDATE_ROOTS) if candidate else _key_of(reach.paths, tree),
        problem_key=_problem_key(problem, of_problem, spec, tree),
        reached=frozenset(reach.paths | of_problem.paths | {_extras_path(spec)}),
        refused=refused,
        parts=len(reach.paths),
    )


def _problem(spec: KernelSpec, tree: Tree, reach: Reach) -> Problem:
    """The problem as it stands in a commit.

    Raises:
        ProblemError: if it is missing or no problem.
        NotOneText: if it cannot be written as one text.
    """
    if spec.problem not in tree:
        raise ProblemError(f"{spec.problem}: no such file in this commit")
    source = one_text(reach)
    check_problem_source(source, spec.problem)
    at = PurePosixPath(spec.problem)
    return Problem(
        name=cut(at.parent.name if at.name == "reference.py" and at.parent.name else at.stem),
        path=cut(spec.problem),
        source=source,
        sha256=hashlib.sha256(source.encode()).hexdigest(),
        extras=_extras(tree.read(_extras_path(spec)), _extras_path(spec)),
    )


def _extras(text: str | None, path: str) -> ProblemExtras:
    import tomllib

    from pydantic import ValidationError

    try:
        return ProblemExtras.model_validate(tomllib.loads(text or ""))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ProblemError(f"{path}: {str(error).splitlines()[0]}") from error


def _extras_path(spec: KernelSpec) -> str:
    return str(PurePosixPath(spec.problem).parent / "problem.toml").removeprefix("./")


def _problem_key(problem: Problem | None, reach: Reach, spec: KernelSpec, tree: Tree) -> str:
    if problem is None:
        return _key_of(reach.paths | {_extras_path(spec)}, tree)
    return python_key(problem.source) + problem.extras.model_dump_json()


def _key_of(paths: Iterable[str], tree: Tree) -> str:
    return hashlib.sha256(
        "\n".join(f"{path} {_key_at(tree, path)}" for path in sorted(paths)).encode("utf-8", "replace")
    ).hexdigest()


def _key_at(tree: Tree, path: str) -> str:
    text = tree.read(path)
    return tree.entries.get(path, "") if text is None else text_key(text, path)


def _matches(path: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(path, p) or path.startswith(p.rstrip("/") + "/") for p in patterns)
