"""What went wrong in a worker, as a status of the contract and a reason with the candidate's line in it.

All of it is a claim of the worker's process: the judge may only use it to reject.
"""

from __future__ import annotations

import linecache
import traceback
from types import TracebackType
from typing import Any

import torch

_COMPILER_ERRORS = ("CompilationError", "PTXASError", "CompileTimeAssertionFailure", "MLIRError", "TileError")
_NO_DEVICE = (
    "CUDA_HOME environment variable is not set",
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "0 active drivers",
    "CUDA driver initialization failed",
    "libcuda.so",
)
_NO_MEMORY = (
    "can't allocate memory",
    "Cannot allocate memory",
    "CUDA error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
)
_NOT_INSTALLED = {
    "No module named 'cuda.tile'": "pip install 'tilecast[cutile]'",
    "No module named 'cuda.core'": "pip install 'cuda-core[cu13]'",
    "No module named 'cuda'": "pip install 'cuda-core[cu13]'",
    "Ninja is required to load C++ extensions": "pip install ninja",
}
"""What a candidate may rely on and this machine lacks, with the remedy."""


class Failure(Exception):
    """A candidate's failure: ``status`` of the contract and a reason for people and models."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason[:2000]

    def to_message(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"status": self.status, "reason": self.reason}


def classify(error: BaseException, path: str, *, loading: bool, device: str) -> Failure:
    """The failure that an exception out of user code amounts to. ``path``: the user's file, for its line."""
    if isinstance(error, Failure):
        return error
    chain = _chain(error)
    names = {name for item in chain for name in _kinds(item)}
    text = describe(error, path)
    unsupported = next((item for item in chain if "Unsupported" in _kinds(item)), None)
    if unsupported is not None:
        return Failure("ENVIRONMENT_ERROR", f"this machine cannot run it: {unsupported}")
    if any(isinstance(item, torch.OutOfMemoryError | MemoryError) for item in chain):
        return Failure("OUT_OF_MEMORY", text)
    if any(mark in str(item) for item in chain for mark in _NO_MEMORY):
        return Failure("OUT_OF_MEMORY", text)
    if device == "cpu" and any(mark in str(item) for item in chain for mark in _NO_DEVICE):
        return Failure("ENVIRONMENT_ERROR", f"this candidate needs a GPU, and this machine has none: {text}")
    for mark, remedy in _NOT_INSTALLED.items():
        if any(mark in str(item) for item in chain if isinstance(item, ImportError | RuntimeError)):
            return Failure("ENVIRONMENT_ERROR", f"not installed on this machine ({remedy}): {text}")
    if names & set(_COMPILER_ERRORS) or "OutOfResources" in names or "Error building extension" in text:
        return Failure("COMPILE_ERROR", text)
    if loading or isinstance(error, SyntaxError):
        return Failure("COMPILE_ERROR", text)
    return Failure("RUNTIME_ERROR", text)


def describe(error: BaseException, path: str) -> str:
    """Type and message, and the last line of the user's own file on the way to it."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} (line {error.lineno}: {(error.text or '').strip()[:120]})"
    text = f"{type(error).__name__}: {_message(error)}"
    where = _line(error.__traceback__, path)
    return f"{text} ({where})" if where else text


def _message(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - user-defined __str__ may raise anything
        return f"<message raised {type(broken).__name__}>"
    return message if len(message) <= 1500 else message[:500] + " … " + message[-900:]


def _line(trace: TracebackType | None, path: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == path]
    if not lines or lines[-1] is None:
        return ""
    return f"line {lines[-1]}: {linecache.getline(path, lines[-1]).strip()[:120]}"


def _kinds(error: BaseException) -> set[str]:
    """Names of its class and of those above: a library's errors often have a kind each, below one of its own."""
    return {kind.__name__ for kind in type(error).__mro__}


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found and len(found) < 20:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found
