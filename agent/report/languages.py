"""In which language a candidate is written, by what it imports; never by running it."""

from __future__ import annotations

import ast

PLAIN = "pytorch"


def language_of(source: str) -> str:
    """``triton``, ``cutile``, ``cuda`` or ``cpp`` (an extension built from source), else ``pytorch``.

    ``unknown`` if the text does not parse.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return "unknown"
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    if any(name == "cuda.tile" or name.startswith("cuda.tile.") for name in imported):
        return "cutile"
    if any(name == "triton" or name.startswith("triton.") for name in imported):
        return "triton"
    if any(name.startswith("torch.utils.cpp_extension") for name in imported):
        return "cuda" if "__global__" in source else "cpp"
    return PLAIN
