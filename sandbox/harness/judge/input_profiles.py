"""What an input of a problem is, judged by several draws of its ``get_inputs``: floats, probabilities, indices, masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Kind = Literal["float", "positive", "probability", "index", "bool", "fixed"]


@dataclass(frozen=True)
class InputProfile:
    """What an input is, judged by several draws of ``get_inputs``.

    ``fixed`` is passed through as drawn: scalars, sorted or unique integers, values that never change, two-valued
    floats (masks).
    """

    kind: Kind
    low: float = 0.0
    high: float = 0.0
    pool: Tensor | None = None
    """Observed integer values (for ``index``): redraws choose among them."""
    density: float = 0.5
    """Share of true elements (for ``bool``)."""
    finite: bool = True

    @property
    def variable(self) -> bool:
        """Whether families change it."""
        return self.kind != "fixed"


def profile_inputs(draws: Sequence[Sequence[Any]]) -> list[InputProfile]:
    """Judge each input by two or more draws with different seeds.

    Raises:
        ValueError: if the draws differ in length.
    """
    if len({len(draw) for draw in draws}) != 1:
        raise ValueError(f"get_inputs gives {sorted({len(draw) for draw in draws})} inputs from call to call")
    return [_profile([draw[index] for draw in draws]) for index in range(len(draws[0]))]


def _profile(values: Sequence[Any]) -> InputProfile:
    if not all(isinstance(value, Tensor) for value in values):
        return InputProfile("fixed")
    tensors: list[Tensor] = list(values)
    if tensors[0].numel() == 0 or len({t.dtype for t in tensors}) != 1:
        return InputProfile("fixed")
    if tensors[0].dtype is torch.bool:
        return _profile_bool(tensors)
    if tensors[0].dtype.is_floating_point:
        return _profile_float(tensors)
    if tensors[0].dtype.is_complex:
        return InputProfile("float")
    return _profile_integer(tensors)


def _unchanging(tensors: Sequence[Tensor]) -> bool:
    return all(t.shape == tensors[0].shape and torch.equal(t, tensors[0]) for t in tensors[1:])


def _profile_bool(tensors: Sequence[Tensor]) -> InputProfile:
    if _unchanging(tensors):
        return InputProfile("fixed")
    return InputProfile("bool", density=float(tensors[0].double().mean()))


def _profile_float(tensors: Sequence[Tensor]) -> InputProfile:
    wide = [t.double() for t in tensors]
    finite = all(bool(torch.isfinite(t).all()) for t in wide)
    low, high = (min(float(t.min()) for t in wide), max(float(t.max()) for t in wide)) if finite else (-1.0, 1.0)
    two_valued = tensors[0].numel() > 4 and all(_distinct_count(t) <= 2 for t in wide)
    if two_valued and not (finite and low == high):
        return InputProfile("fixed", low, high, finite=finite)
    if finite and low >= 0 and all(_rows_sum_to_one(t) for t in wide):
        return InputProfile("probability", low, high)
    if finite and low > 0:
        return InputProfile("positive", low, high)
    return InputProfile("float", low, high, finite=finite)


def _distinct_values(values: Tensor) -> Tensor:
    ordered = values.reshape(-1).sort().values
    return ordered[torch.cat([torch.ones_like(ordered[:1], dtype=torch.bool), ordered[1:] != ordered[:-1]])]


def _distinct_count(values: Tensor) -> int:
    return _distinct_values(values).numel()


def _rows_sum_to_one(values: Tensor) -> bool:
    if values.ndim == 0 or values.shape[-1] < 2:
        return False
    return bool(((values.sum(-1) - 1).abs() < 1e-2).all())


def _profile_integer(tensors: Sequence[Tensor]) -> InputProfile:
    low, high = min(int(t.min()) for t in tensors), max(int(t.max()) for t in tensors)
    if _unchanging(tensors) or tensors[0].numel() <= 2 or all(_ordered(t) or _distinct(t) for t in tensors):
        return InputProfile("fixed", low, high)
    pool = _distinct_values(torch.cat([t.reshape(-1) for t in tensors]))
    return InputProfile("index", low, high, pool)


def _ordered(values: Tensor) -> bool:
    """Sorted along the last axis, as offsets and segment ids are."""
    if values.ndim == 0 or values.shape[-1] < 3:
        return False
    steps = values.diff(dim=-1)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _distinct(values: Tensor) -> bool:
    """Each value once, as in a permutation: a random redraw would make it something else."""
    return values.numel() > 3 and _distinct_count(values) == values.numel()
