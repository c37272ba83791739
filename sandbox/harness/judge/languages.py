"""What a candidate's text says about itself: whether it needs an interpreter here, and places a reader may look at.

Static rules only explain. None of them accepts or rejects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import torch

_KERNEL_MODULES = ("triton", "cuda.tile", "cuda_tile")
_SUSPICIOUS_CALLS = {
    "register_module_forward_hook": "a global hook",
    "get_objects": "a walk over all live objects",
    "_getframe": "a look into its callers",
    "fork": "a fork",
    "set_num_threads": "a change of the thread count",
    "set_default_dtype": "a change of the default dtype",
    "manual_seed": "a reseeding",
}


def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needs_interpreter(source: str, device: torch.device) -> bool:
    """Whether kernels of a GPU language are to be interpreted: on a CPU, for a file that imports one."""
    tree = _tree(source)
    if device.type != "cpu" or tree is None:
        return False
    return any(name == m or name.startswith(m + ".") for name in _imports(tree) for m in _KERNEL_MODULES)


def static_hints(source: str) -> list[str]:
    """Lines worth a look, each with what it seems to do."""
    tree = _tree(source)
    if tree is None:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _SUSPICIOUS_CALLS:
                found.append(f"line {node.lineno}: {_SUSPICIOUS_CALLS[name]}")
        elif isinstance(node, ast.Assign):
            found += [
                f"line {node.lineno}: assigns {ast.unparse(target)}"
                for target in node.targets
                if isinstance(target, ast.Attribute) and ast.unparse(target).startswith(("torch.", "time.", "triton."))
            ]
    return found
