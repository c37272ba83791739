"""What one torch operation costs, and how its sizes are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class HostOp:
    """One torch operation.

    ``kind`` is ``elementwise``, ``reduce``, ``native``, ``library``, ``gather``, ``scan``, ``fill`` or ``fused``.
    """

    kind: str
    name: str
    bytes: float
    flops: float = 0.0
    reads: tuple[int, ...] = ()
    dtype: str = "float32"
    strided: bool = False
    """Whether an operand is not contiguous."""


Result = tuple[Any, list[HostOp]]


def size_args(args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> tuple[int, ...] | None:
    """Sizes given as separate numbers or as one sequence."""
    given = (kwargs or {}).get("size", args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else tuple(args))
    items = given if isinstance(given, tuple | list) else (given,)
    numbers = [n for n in items if isinstance(n, int) and not isinstance(n, bool)]
    return tuple(numbers) if len(numbers) == len(items) else None
