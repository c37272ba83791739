"""What is configured at a commit: settings and kernels to look after, read from the commit itself and never from a checkout."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tilecast.agent.ci.git import Tree
from tilecast.agent.config import KernelSettings, Settings, resolve
from tilecast.sandbox.errors import UsageError

FILES = ("tilecast.toml", "pyproject.toml")


@dataclass(frozen=True)
class KernelSpec:
    """A kernel to look after in one commit: paths from the repository's root."""

    name: str
    problem: str
    candidate: str
    settings: KernelSettings


def settings_at(trees: list[Tree], prefix: str, flags: Mapping[str, Any]) -> Settings:
    """Settings of the first commit that configures tilecast: the base first, so that a change cannot loosen its own judgement.

    A configuration that cannot be used is passed over where another commit follows: a change may be there to repair it.

    Raises:
        UsageError: for an unknown key or a bad value, naming it.
    """
    for tree in trees:
        texts = {name: text for name in FILES if (text := tree.read(prefix + name)) is not None}
        if "tilecast.toml" in texts or "[tool.tilecast" in texts.get("pyproject.toml", ""):
            try:
                return _resolved(texts, flags)
            except UsageError:
                if tree is trees[-1]:
                    raise
    return _resolved({}, flags)


def _resolved(texts: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    with tempfile.TemporaryDirectory(prefix="tilecast-ci-") as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        try:
            return resolve(flags, Path(folder))
        except UsageError as error:
            raise UsageError(str(error).replace(f"{folder}/", "")) from None


def kernels_at(tree: Tree, prefix: str) -> list[KernelSpec]:
    """Kernels configured in a commit, else those found in it: folders with ``reference.py`` and ``kernel.py``.

    Raises:
        UsageError: for two of one name.
    """
    configured = settings_at([tree], prefix, {}).kernel
    specs = [_spec(entry, prefix, tree) for entry in configured] if configured else _found(tree, prefix)
    double = [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]
    if double:
        raise UsageError(f"two kernels are called {double[0]!r}; give each [[kernel]] a `name` of its own")
    return specs


def _spec(entry: KernelSettings, prefix: str, tree: Tree) -> KernelSpec:
    problem = _inside(prefix, entry.problem)
    folder = f"{problem}/reference.py" in tree or not problem.endswith(".py")
    home = problem if folder else str(PurePosixPath(problem).parent)
    candidate = _inside(prefix, entry.candidate) if entry.candidate else f"{home}/kernel.py"
    short = PurePosixPath(problem).name.removesuffix(".py")
    stem = PurePosixPath(candidate).stem
    name = entry.name or (short if stem in ("kernel", short) else f"{short}/{stem}")
    anchored = entry.model_copy(update={"paths": [prefix + path for path in entry.paths]})
    return KernelSpec(name, f"{problem}/reference.py" if folder else problem, candidate, anchored)


def _found(tree: Tree, prefix: str) -> list[KernelSpec]:
    folders = sorted(
        path.removesuffix("reference.py").rstrip("/")
        for path in tree.entries
        if path.startswith(prefix) and PurePosixPath(path).name == "reference.py"
    )
    folders = [folder for folder in folders if str(PurePosixPath(folder) / "kernel.py") in tree]
    short = Counter(PurePosixPath(folder).name for folder in folders)
    specs = []
    for folder in folders:
        name = PurePosixPath(folder).name
        unique = (name if short[name] == 1 else folder) or "kernel"
        at = PurePosixPath(folder)
        specs.append(
            KernelSpec(unique, str(at / "reference.py"), str(at / "kernel.py"), KernelSettings(problem=folder))
        )
    return specs


def _inside(prefix: str, path: str) -> str:
    """A configured path from the root.

    Raises:
        UsageError: if it leads out of the repository.
    """
    parts: list[str] = []
    for part in PurePosixPath(prefix + path).parts:
        if part == ".." and parts:
            parts.pop()
        elif part in ("..", "/"):
            raise UsageError(f"[[kernel]] path {path!r} leads out of the repository")
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
