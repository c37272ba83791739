"""Loads the problem's and the candidate's text as modules from files (Triton reads its kernels' source back from disk)."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

CANDIDATE_MODULE = "candidate"
REFERENCE_MODULE = "reference"


def line_in_candidate(function_source: str, line: int) -> int:
    """Line of the candidate's file for a line of one of its functions; the same line if the function is not found in it."""
    module = sys.modules.get(CANDIDATE_MODULE)
    if module is None or not module.__file__:
        return line
    text = Path(module.__file__).read_text(encoding="utf-8")
    at = text.find(function_source.rstrip())
    return text[:at].count("\n") + line if at >= 0 else line


def load_text(source: str, name: str, folder: Path) -> ModuleType:
    """Execute ``source`` as module ``name`` from ``folder/name.py``.

    Raises:
        Exception: whatever the text raises.
    """
    file = folder / f"{name}.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def call_with(function: Any, arguments: dict[str, Any]) -> list[Any]:
    """``function`` with those of ``arguments`` that it names, as a list of what it returns."""
    accepted = inspect.signature(function).parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
    result = function(**{name: value for name, value in arguments.items() if takes_all or name in accepted})
    return list(result) if isinstance(result, tuple | list) else [result]


def where(error: BaseException, module: str) -> str:
    """``line N: Type: message``, N the last line of the named module that the traceback passes through."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).stem == module]
    message = " ".join(str(error).split())[:300]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {message}"
