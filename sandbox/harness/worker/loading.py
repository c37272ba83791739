"""A user's file from its text: written to the worker's private folder (so that tracebacks have lines), then imported."""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
from types import ModuleType
from typing import Any

import torch

from tilecast.sandbox.harness.worker import failures

_FOLDER = "source"


def load_source(source: str, name: str, device: str) -> ModuleType:
    """Import text as a module of its own.

    Raises:
        failures.Failure: COMPILE_ERROR with the line, or what its import raised.
    """
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), _FOLDER)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise failures.Failure("COMPILE_ERROR", f"{name}: cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise failures.classify(error, path, loading=True, device=device) from error
    return module


def path_of(module: ModuleType) -> str:
    """The file of a module loaded by :func:`load_source`."""
    return str(module.__file__)


def construct(module: ModuleType, class_name: str, arguments: list[Any], device: torch.device) -> torch.nn.Module:
    """``class_name(*arguments)`` on ``device``.

    Raises:
        failures.Failure: COMPILE_ERROR if there is no such module class, else what construction raised.
    """
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type) or not issubclass(kind, torch.nn.Module):
        raise failures.Failure("COMPILE_ERROR", f"the file defines no `class {class_name}(nn.Module)`")
    try:
        with torch.device(device):
            made = kind(*arguments)
        return made.to(device)
    except BaseException as error:
        raise failures.classify(error, path_of(module), loading=False, device=str(device)) from error
