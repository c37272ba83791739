"""Files that a tool may read and write: text below the working folder, and candidates only. Fails closed."""

from __future__ import annotations

import ast
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from tilecast.agent.result import write_text
from tilecast.agent.toolbox.base import FileChange, Refusal
from tilecast.sandbox.problem import Problem

SOURCES = (".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".ptx", ".sass")
TEXTS = (".md", ".txt", ".rst", ".toml", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".log")
READABLE = frozenset(SOURCES + TEXTS)
LARGEST_BYTES = 1_000_000
MOST_LISTED = 200
SPECIAL = frozenset({"conftest", "sitecustomize", "usercustomize", "setup", "__init__", "__main__", "reference"})
"""Stems that Python, pytest or tilecast itself gives a meaning."""
OWN_FOLDERS = tuple(Path(__file__).resolve().parents[2] / name for name in ("agent", "tools", "sandbox", "prompts"))


class WorkFolder:
    """The working folder as tools see it.

    Args:
        root: the folder.
        problem: whose files may be read wherever they lie, and whose reference is never written.
    """

    def __init__(self, root: Path, problem: Problem | None = None) -> None:
        self.root, self.problem = root.resolve(), problem

    def listing(self, folder: str = ".") -> list[str]:
        """Files below ``folder``, relative to the root; hidden ones and caches are left out.

        Raises:
            Refusal: if it is no folder here.
        """
        top = self._inside(folder)
        if not top.is_dir():
            raise Refusal(f"{folder}: no such folder in {self.root}")
        found: list[str] = []
        for here, folders, names in os.walk(top):
            folders[:] = sorted(
                f for f in folders if not f.startswith(".") and f not in ("__pycache__", "node_modules")
            )
            for name in sorted(names):
                if not name.startswith(".") and Path(name).suffix in READABLE:
                    found.append(str((Path(here) / name).relative_to(self.root)))
                if len(found) >= MOST_LISTED:
                    return found
        return found

    def read(self, path: str) -> str:
        """A file's text.

        Raises:
            Refusal: for what is outside, hidden, no text, or too large.
        """
        file = self._inside(path)
        if file.suffix not in READABLE:
            raise Refusal(f"{path}: only source and text files are read ({', '.join(sorted(READABLE))})")
        try:
            if file.stat().st_size > LARGEST_BYTES:
                raise Refusal(f"{path}: larger than {LARGEST_BYTES} bytes")
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Refusal(f"{path}: cannot be read: {error}") from error

    def write(self, path: str, text: str) -> FileChange:
        """Write a candidate, whole or not at all.

        Raises:
            Refusal: for a place or a text that is no candidate's.
        """
        file, before = self.place_for(path)
        check_candidate_text(path, text)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, text)
        except OSError as error:
            raise Refusal(f"{path}: cannot be written: {error}") from error
        return FileChange(path=str(file.relative_to(self.root)), before=before, after=text)

    def place_for(self, path: str) -> tuple[Path, str | None]:
        """Where a candidate may be written, and the text of the one that is there.

        Raises:
            Refusal: if none may be written there.
        """
        file = self._writable(path)
        before = self.read(path) if file.exists() else None
        if before is not None and not defines(before, "ModelNew"):
            raise Refusal(f"{path}: exists and is no candidate (it has no class ModelNew); choose another name")
        return file, before

    def edit(self, path: str, old: str, new: str) -> FileChange:
        """Replace the one passage ``old`` by ``new``.

        Raises:
            Refusal: if it does not occur exactly once, and as :meth:`write`.
        """
        self._writable(path)
        text = self.read(path)
        count = text.count(old)
        if count != 1:
            raise Refusal(f"{path}: `old` occurs {count} times, and must occur once; give more of the lines around it")
        return self.write(path, text.replace(old, new))

    def take_back(self, change: FileChange) -> None:
        """Undo a change.

        Raises:
            Refusal: if the file is not as the change left it.
        """
        file = self._writable(change.path)
        now = self.read(change.path) if file.exists() else None
        if now != change.after:
            raise Refusal(f"{change.path} was changed since by something else; it is left as it is")
        if change.before is None:
            file.unlink()
        else:
            write_text(file, change.before)

    def name_of(self, path: str | Path) -> str:
        """How a path is shown: relative to the root where it lies in it."""
        full = (self.root / path).resolve()
        return str(full.relative_to(self.root)) if full.is_relative_to(self.root) else str(full)

    def _inside(self, path: str) -> Path:
        """The real path of something readable; links are followed first, so that none leads out."""
        file = (self.root / path).resolve()
        homes = [self.root]
        if self.problem is not None and Path(self.problem.path).name == "reference.py":
            homes.append(Path(self.problem.path).resolve().parent)
        allowed = next((home for home in homes if file.is_relative_to(home)), None)
        if self.problem is not None and file == Path(self.problem.path).resolve():
            return file
        if allowed is None:
            raise Refusal(f"{path}: outside of the working folder {self.root}")
        if any(part.startswith(".") for part in file.relative_to(allowed).parts):
            raise Refusal(f"{path}: hidden files are not opened")
        return file

    def _writable(self, path: str) -> Path:
        file = (self.root / path).resolve()
        if not file.is_relative_to(self.root):
            raise Refusal(f"{path}: outside of the working folder {self.root}; nothing is written there")
        if self.is_reference(file):
            raise Refusal(
                f"{path} is a reference: it says what is right and is never changed. "
                "Write a candidate, a file with class ModelNew, instead"
            )
        if any(file.is_relative_to(folder) for folder in OWN_FOLDERS):
            raise Refusal(f"{path} belongs to tilecast itself, which judges candidates, and is never changed")
        if any(part.startswith(".") for part in file.relative_to(self.root).parts):
            raise Refusal(f"{path}: hidden files are not written")
        if file.suffix != ".py":
            raise Refusal(f"{path}: a candidate is a .py file")
        if not file.stem.isidentifier():
            raise Refusal(f"{path}: name it with letters, digits and underscores")
        if _has_meaning(file.stem):
            raise Refusal(f"{path}: the name {file.stem!r} means something to Python or its tools; choose another one")
        return file

    def is_reference(self, file: Path) -> bool:
        """Whether a file is the problem's, or any other problem's, reference, under whatever name."""
        if file.name == "reference.py":
            return True
        if self.problem is not None and file.exists() and file.samefile(self.problem.path):
            return True
        if not file.is_file():
            return False
        text = file.read_text(encoding="utf-8", errors="replace")
        return defines(text, "Model") and defines(text, "get_inputs")


def defines(text: str, name: str) -> bool:
    """Whether a text defines a class or function of this name at its top level; a text that does not parse is searched."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return any(line.startswith((f"class {name}(", f"class {name}:", f"def {name}(")) for line in text.splitlines())
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name for node in tree.body)


def check_candidate_text(path: str, text: str) -> None:
    """Refuse what cannot be a candidate before it is on the disk.

    Raises:
        Refusal: naming line and reason.
    """
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise Refusal(f"{path}:{error.lineno}: not Python: {error.msg}; nothing was written") from error
    except ValueError as error:
        raise Refusal(f"{path}: not Python: {error}; nothing was written") from error
    if not defines(text, "ModelNew"):
        raise Refusal(f"{path}: a candidate defines `class ModelNew(nn.Module)`; nothing was written")
    if len(text.encode()) > LARGEST_BYTES:
        raise Refusal(f"{path}: larger than {LARGEST_BYTES} bytes; nothing was written")


def _has_meaning(stem: str) -> bool:
    """A file of this name would be run or imported by other programs started in the folder."""
    if stem in SPECIAL or stem in sys.stdlib_module_names or stem.startswith("test_") or stem.endswith("_test"):
        return True
    return PathFinder.find_spec(stem, [entry for entry in sys.path if "site-packages" in entry]) is not None
