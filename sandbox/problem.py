"""A problem as text: found on disk, checked for syntax and required names, never executed here.

What needs execution (workloads, shapes, tolerance) is learned by the harness and comes back as :class:`ProblemFacts`.
"""

from __future__ import annotations

import ast
import hashlib
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from tilecast.sandbox.errors import ProblemError
from tilecast.sandbox.hints import no_such_file
from tilecast.sandbox.schema import Document

REQUIRED = ("Model", "get_inputs", "get_init_inputs")


class ProblemExtras(Document):
    """Keys of ``problem.toml``; each wins over the same name in the file. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    workloads: dict[str, dict[str, Any]] | None = Field(default=None, alias="WORKLOADS")
    tolerance: float | None = Field(default=None, alias="TOLERANCE", ge=0)
    domain: Literal["open", "declared"] | None = Field(default=None, alias="DOMAIN")


class Problem(Document):
    """One problem file with what lies beside it."""

    name: str
    path: str
    source: str
    sha256: str
    extras: ProblemExtras = ProblemExtras()
    kernel: str | None = None
    """Path of the kernel to start from, if the folder has one."""
    recorded: str | None = None
    """Path of the folder whose ``measurements.jsonl`` belongs to this problem, if there is one."""

    def payload(self) -> dict[str, Any]:
        """What the harness needs to know of it, as plain JSON."""
        extras = self.extras
        return {
            "name": self.name,
            "source": self.source,
            "sha256": self.sha256,
            "workloads": extras.workloads,
            "tolerance": extras.tolerance,
            "domain": extras.domain,
        }


class TensorFacts(Document):
    """Shape and dtype of one tensor (``float32``, ``bfloat16``, …); ``kind`` tells tensors from scalars."""

    name: str
    shape: list[int]
    dtype: str


class WorkloadFacts(Document):
    """One workload, as seen without allocating it: inputs, outputs, least traffic and arithmetic."""

    name: str
    inputs: list[TensorFacts]
    outputs: list[TensorFacts]
    min_bytes: int
    """Compulsory traffic: each input, parameter and output once, in bytes."""
    flops: int
    """Floating-point operations counted on the reference's dispatched operators (0 where none are matrix-like)."""


class ProblemFacts(Document):
    """What running the problem file taught us."""

    workloads: list[WorkloadFacts]
    tolerance: float | None
    domain: Literal["open", "declared"]
    parameters: list[TensorFacts] = []
    mutates_inputs: bool = False
    notes: list[str] = []

    def workload(self, name: str) -> WorkloadFacts:
        """Look one up by name.

        Raises:
            KeyError: if the problem has no such workload.
        """
        for item in self.workloads:
            if item.name == name:
                return item
        raise KeyError(f"no workload {name!r}: there are {', '.join(w.name for w in self.workloads)}")


def load_problem(path: str | Path) -> Problem:
    """Find and read a problem: a Python file, or a folder that holds it as ``reference.py``.

    Raises:
        ProblemError: with the path, the line where there is one, and the remedy.
    """
    given = Path(path)
    file = given / "reference.py" if given.is_dir() else given
    if not file.is_file():
        raise ProblemError(f"{given}: a folder needs a reference.py" if given.is_dir() else no_such_file(given))
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{file}: cannot be read as UTF-8 text: {error}") from error
    check_problem_source(source, str(file))
    folder = file.parent
    name = folder.name if file.name == "reference.py" else file.stem
    kernel = folder / "kernel.py"
    has_record = file.name == "reference.py" and (folder / "measurements.jsonl").is_file()
    return Problem(
        name=name or file.stem,
        path=str(file),
        source=source,
        sha256=hashlib.sha256(source.encode()).hexdigest(),
        extras=_read_extras(folder / "problem.toml"),
        kernel=str(kernel) if file.name == "reference.py" and kernel.is_file() else None,
        recorded=str(folder) if has_record else None,
    )


def check_problem_source(source: str, file: str) -> None:
    """Syntax and required names.

    Raises:
        ProblemError: naming file, line and what is missing.
    """
    try:
        tree = ast.parse(source, filename=file)
    except SyntaxError as error:
        raise ProblemError(f"{file}:{error.lineno}: {error.msg}") from error
    defined = _defined_names(tree)
    for name in REQUIRED:
        if name not in defined:
            raise ProblemError(
                f"{file}:1: `{name}` is not defined; a problem needs class Model, get_inputs() and get_init_inputs()"
            )


def _defined_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names


def _read_extras(file: Path) -> ProblemExtras:
    if not file.is_file():
        return ProblemExtras()
    try:
        return ProblemExtras.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ProblemError(f"{file}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise ProblemError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
