"""Wrong kernels in numbers: what a careless or cheating kernel would return instead of the right outputs.

A checker that accepts one of these on every set of inputs cannot tell such a kernel from a right one on this problem.
Pure functions; the flow that
pushes them through the checker is in ``lint.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.bounds import as_rows, readable
from tilecast.sandbox.harness.judge.families import clamp_to, is_finite

TF32_DROPPED_BITS = 13


@dataclass(frozen=True)
class Mutation:
    """One kind of wrong answer: what a kernel that gives it did, and what to change in a problem that lets it pass."""

    name: str
    means: str
    advice: str


ZEROS = Mutation("zeros", "returns zeros", "outputs are too small for TOLERANCE, or all zero: scale the inputs up")
MEAN = Mutation(
    "mean", "returns the mean of the right output everywhere", "outputs hardly vary: use inputs with more spread"
)
ROW_MEAN = Mutation(
    "row-mean", "returns each row's mean", "outputs hardly vary within a row: use inputs with more spread"
)
IDENTITY = Mutation(
    "identity", "returns an input", "the operation changes nothing on these inputs: let them take other signs and sizes"
)
HALF = Mutation(
    "half-the-rows", "leaves the second half unwritten (zeros)", "the second half of the output is zero anyway"
)
ONE_ROW = Mutation(
    "one-row-wrong", "returns one row in another's place", "rows are alike: use inputs that differ by row"
)
STALE = Mutation(
    "stale", "returns the answer to the previous call", "outputs are alike from call to call: vary the inputs"
)
NANS = Mutation("nan", "returns NaN", "the reference's own output is NaN: change the inputs")
SCALED = Mutation("0.99x", "is off by one per cent", "TOLERANCE is too loose")
LOW_OUTPUT = Mutation("low-precision-output", "rounds its result to a lower precision", "TOLERANCE is too loose")
LOW_INPUT = Mutation(
    "low-precision-inputs",
    "computes with operands of a lower precision",
    'rounding averages out on these inputs: use zero-mean ones (or DOMAIN = "open"), fewer terms, or a tighter TOLERANCE',
)
OUTPUT_MUTATIONS = (ZEROS, MEAN, ROW_MEAN, HALF, ONE_ROW, NANS, SCALED)


def mutate_outputs(mutation: Mutation, outputs: Sequence[Tensor]) -> list[Tensor] | None:
    """Apply one of :data:`OUTPUT_MUTATIONS` to every floating output (integers where it makes sense)."""
    made = [_MAKERS[mutation.name](item) if item.numel() else item for item in outputs]
    same = all(a.dtype == b.dtype and equal_bits(a, b) for a, b in zip(made, outputs, strict=True))
    return None if same and mutation is not NANS else made


def _is_float(value: Tensor) -> bool:
    return value.dtype.is_floating_point or value.dtype.is_complex


def _cast(values: Tensor, like: Tensor) -> Tensor:
    if not _is_float(like):
        return values.real.round().to(like.dtype) if values.dtype.is_complex else values.round().to(like.dtype)
    return clamp_to(values, like.dtype).to(like.dtype)


def _wide(value: Tensor) -> Tensor:
    return value.to(torch.complex128 if value.dtype.is_complex else torch.float64)


def _mean(value: Tensor) -> Tensor:
    wide = _wide(value)
    finite = wide[torch.isfinite(wide)]
    fill = finite.mean() if finite.numel() else wide.new_zeros(())
    return _cast(fill.expand(value.shape), value)


def _row_mean(value: Tensor) -> Tensor:
    if value.ndim == 0:
        return _mean(value)
    return _cast(_wide(value).mean(-1, keepdim=True).expand(value.shape), value)


def _half(value: Tensor) -> Tensor:
    if value.ndim == 0:
        return torch.zeros_like(value)
    rows = value.reshape(1, -1) if value.shape[0] < 2 else value.reshape(value.shape[0], -1)
    changed = rows.clone()
    if changed.shape[0] > 1:
        changed[changed.shape[0] // 2 :] = 0
    else:
        changed[:, changed.shape[1] // 2 :] = 0
    return changed.reshape(value.shape)


def _one_row(value: Tensor) -> Tensor:
    """The last row takes the place of the first; a single row is turned round by one element."""
    rows = value.reshape(1, -1) if value.ndim < 2 else value.reshape(-1, value.shape[-1])
    changed = rows.clone()
    if changed.shape[0] > 1:
        changed[0] = rows[-1]
    else:
        changed = changed.roll(1, -1)
    return changed.reshape(value.shape)


def _nans(value: Tensor) -> Tensor:
    if not _is_float(value):
        return value
    return torch.full(value.shape, float("nan"), device=value.device).to(value.dtype)


def _scaled(value: Tensor) -> Tensor:
    return _cast(_wide(value) * 0.99, value) if _is_float(value) else value


_MAKERS: dict[str, Callable[[Tensor], Tensor]] = {
    ZEROS.name: torch.zeros_like,
    MEAN.name: _mean,
    ROW_MEAN.name: _row_mean,
    HALF.name: _half,
    ONE_ROW.name: _one_row,
    NANS.name: _nans,
    SCALED.name: _scaled,
}


def identities(outputs: Sequence[Tensor], inputs: Sequence[Any]) -> list[list[Tensor]]:
    """Inputs that could stand in for a single output: same shape, floating; cast to its dtype."""
    if len(outputs) != 1:
        return []
    want = outputs[0]
    fits = [v for v in inputs if isinstance(v, Tensor) and v.shape == want.shape and _is_float(v) and _is_float(want)]
    return [[_cast(_wide(item), want)] for item in fits if not (item.dtype.is_complex and not want.dtype.is_complex)]


def lower_precisions(dtype: torch.dtype) -> list[str]:
    """Names of the precisions below a dtype that kernels are tempted to use."""
    if dtype is torch.float64:
        return ["float32"]
    if dtype is torch.float32:
        return ["tf32", "float16", "bfloat16"]
    return ["float8_e4m3fn"] if dtype in (torch.float16, torch.bfloat16) else []


def round_to(value: Tensor, precision: str) -> Tensor:
    """Round to nearest in a lower precision and come back; large numbers saturate."""
    if precision == "tf32":
        bits = value.float().contiguous().view(torch.int32)
        half = 1 << (TF32_DROPPED_BITS - 1)
        kept = (bits + half) & ~((1 << TF32_DROPPED_BITS) - 1)
        return torch.where(torch.isfinite(value), kept.view(torch.float32), value.float()).to(value.dtype)
    target = getattr(torch, precision)
    return clamp_to(readable(value), target).to(target).to(value.dtype)


def rounded_inputs(inputs: Sequence[Any], precision: str) -> list[Any]:
    """Every floating input that has this precision below its own, rounded to it."""
    return [
        round_to(v, precision) if isinstance(v, Tensor) and precision in lower_precisions(v.dtype) else v
        for v in inputs
    ]


def rounded_outputs(outputs: Sequence[Tensor], precision: str) -> list[Tensor] | None:
    """The right outputs rounded; None if none has this precision below its own."""
    if not any(precision in lower_precisions(item.dtype) for item in outputs):
        return None
    return [round_to(v, precision) if precision in lower_precisions(v.dtype) and is_finite(v) else v for v in outputs]


def equal_bits(a: Tensor, b: Tensor) -> bool:
    """Same numbers in the same places, NaN equal to NaN."""
    if a.shape != b.shape:
        return False
    left, right = readable(a), readable(b)
    same = left == right
    if _is_float(left):
        same |= torch.isnan(left) & torch.isnan(right)
    return bool(same.all())


def constant_axes(outputs: Sequence[Sequence[Tensor]]) -> list[str]:
    """Axes along which an output never varies over several draws: ``output 0, axis 1``. Rounding does not count as
    variation.
    """
    found = []
    for index in range(len(outputs[0])):
        draws = [draw[index] for draw in outputs]
        if not _is_float(draws[0]) or draws[0].dtype.is_complex or not draws[0].numel():
            continue
        found += [
            f"output {index}, axis {axis}"
            for axis in range(draws[0].ndim)
            if draws[0].shape[axis] > 1 and all(_constant_along(item, axis) for item in draws)
        ]
    return found


def _constant_along(value: Tensor, axis: int) -> bool:
    wide = readable(value).double()
    if not bool(torch.isfinite(wide).all()):
        return False
    spread = (wide.amax(axis) - wide.amin(axis)).amax()
    size = float(as_rows(wide).abs().amax())
    return float(spread) <= 32 * torch.finfo(value.dtype).eps * size
