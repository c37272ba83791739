"""NaN and infinities planted in inputs, and which outputs depend on the places where they lie.

Pure; randomness comes from the generator given, which must live on the tensors' device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from tilecast.sandbox.harness.judge.input_profiles import InputProfile


@dataclass(frozen=True)
class Planted:
    """Inputs with planted NaN or infinities, and the same inputs with two different finite values in those places.

    Run the reference on all three: an output *depends* on a planted element where the finite two differ
    (:func:`dependent`).
    """

    inputs: list[Any]
    low: list[Any]
    high: list[Any]
    nonfinite: Literal["nan", "inf"]
    operand: int


def plant(
    what: Literal["nan", "inf"],
    profiles: Sequence[InputProfile],
    base: Sequence[Any],
    generator: Generator,
    count: int = 2,
) -> Planted | None:
    """Plant ``count`` NaN (or +inf and -inf) in one float operand, at most one a row; None if there is no such
    operand.
    """
    choices = [
        i for i, (p, v) in enumerate(zip(profiles, base, strict=True)) if p.kind in ("float", "positive") and v.numel()
    ]
    choices = [i for i in choices if base[i].dtype.is_floating_point and base[i].dtype.itemsize > 1]
    if not choices:
        return None
    operand = choices[int(torch.randint(len(choices), (1,), generator=generator, device=generator.device))]
    value = base[operand]
    rows = value.reshape(-1, value.shape[-1]) if value.ndim else value.reshape(1, 1)
    count = max(1, min(count, rows.shape[0] // 2))
    row = torch.randperm(rows.shape[0], generator=generator, device=generator.device)[:count]
    column = torch.randint(rows.shape[1], (count,), generator=generator, device=generator.device)
    signs = torch.where(torch.arange(count, device=value.device) % 2 == 0, 1.0, -1.0)
    planted = signs * math.inf if what == "inf" else torch.full_like(signs, math.nan)

    def put(values: Tensor) -> list[Any]:
        changed = rows.clone()
        changed[row, column] = values.to(changed.dtype)
        return [changed.reshape(value.shape) if i == operand else v for i, v in enumerate(base)]

    return Planted(put(planted), put(torch.full_like(signs, 1.0)), put(torch.full_like(signs, -2.0)), what, operand)


def dependent(low: Sequence[Tensor], high: Sequence[Tensor]) -> list[Tensor]:
    """Per output, where the two finite variants of :class:`Planted` lead to different values."""
    return [(a != b) & ~((a != a) & (b != b)) for a, b in zip(low, high, strict=True)]
