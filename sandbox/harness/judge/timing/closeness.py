"""Whether the output of a timed call is that of the eager reference on the same inputs: quick, on every call.

The strict rule (float64 truth, error budget) has been applied in verification. Here the question is another one: was this
call really computed, all of it, from these inputs? An output that is stale, cached, unfinished or partly skipped misses by
about its own size somewhere; rounding stays near the tolerance. What fails here goes to the strict rule, which decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.bounds import readable

WHOLE, ROW = 2.0, 10.0
"""How many tolerances an output, and a row of it, may be away from the reference's."""
LEAST = 1e-6


def difference(expected: Sequence[Tensor], got: Sequence[Tensor | None], tolerances: Sequence[float]) -> str:
    """What is wrong with the outputs, in words; empty if nothing is.

    Args:
        expected: the eager reference's outputs.
        got: private copies of the bytes that the worker delivered; None where none came.
        tolerances: relative, one an output (0 for exact types).
    """
    if len(expected) != len(got):
        return f"{len(got)} outputs instead of {len(expected)}"
    for index, (want, have, tolerance) in enumerate(zip(expected, got, tolerances, strict=True)):
        found = _one(want, have, tolerance)
        if found:
            return f"output {index}: {found}" if len(expected) > 1 else found
    return ""


def all_plainly_close(
    calls: Sequence[tuple[Sequence[Tensor], Sequence[Tensor | None]]], tolerances: Sequence[float]
) -> bool:
    """Whether nothing is wrong with the outputs of several calls: one question to their device for all; if it is denied, ask
    :func:`difference` of each.

    Args:
        calls: of each call what is expected and what came, as in :func:`difference`.
        tolerances: relative, one an output.
    """
    answers: list[Tensor] = []
    for expected, got in calls:
        if not len(expected) == len(got) == len(tolerances):
            return False
        for want, have, tolerance in zip(expected, got, tolerances, strict=True):
            if have is None or have.shape != want.shape or have.dtype is not want.dtype:
                return False
            if want.numel():
                answers.append(_question(want, have, tolerance))
    return not answers or bool(torch.stack(answers).all())


def _question(want: Tensor, have: Tensor, tolerance: float) -> Tensor:
    """A bool on the tensors' device: surely alike."""
    if _is_exact(want, tolerance):
        return ~_differs(want, have).any()
    return _plainly_close(_as_they_are(want), _as_they_are(have), max(tolerance, LEAST))


def _differs(want: Tensor, have: Tensor) -> Tensor:
    want, have = readable(want), readable(have)
    return (want != have) & ~((want != want) & (have != have))  # NaN stands where the reference has it


def _is_exact(want: Tensor, tolerance: float) -> bool:
    """Integers, and what a TOLERANCE of 0 is asked of: squares of small differences would vanish."""
    return tolerance == 0.0 or not (want.dtype.is_floating_point or want.dtype.is_complex)


def _one(want: Tensor, have: Tensor | None, tolerance: float) -> str:
    if have is None:
        return "brought no bytes"
    if have.shape != want.shape or have.dtype is not want.dtype:
        return f"shape {list(have.shape)} {have.dtype} instead of {list(want.shape)} {want.dtype}"
    if want.numel() == 0:
        return ""
    if _is_exact(want, tolerance):
        wrong = int(_differs(want, have).sum())
        return f"{wrong} of {want.numel()} values differ" if wrong else ""
    return _floating(_rows(want), _rows(have), max(tolerance, LEAST))


def _rows(tensor: Tensor) -> Tensor:
    """(R, C) in a type whose squares are sound."""
    wide = _as_rows(tensor)
    return wide.to(torch.float64 if wide.dtype is torch.float64 else torch.float32)


def _as_rows(tensor: Tensor) -> Tensor:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.ndim > 1 else tensor.reshape(-1, 1)


def _as_they_are(tensor: Tensor) -> Tensor:
    """(R, C) in the type that they have, as far as it can be computed with: a copy in a wider one is many more bytes."""
    return _as_rows(tensor) if tensor.dtype.itemsize > 1 else _rows(tensor)


def _floating(want: Tensor, have: Tensor, tolerance: float) -> str:
    # One question to the device where all is well; what is not finite never is, and is looked at again.
    if bool(_plainly_close(want, have, tolerance)):
        return ""
    distances = _Distances.of(want, have, tolerance)
    if bool(distances.whole_is_close & distances.rows_are_close):
        return ""
    finite = torch.isfinite(want)
    if not bool(finite.all()):
        same = torch.where(finite, torch.isfinite(have), (want == have) | (want.isnan() & have.isnan()))
        if not bool(same.all()):
            return f"{int((~same).sum())} values are not finite where the reference's are, or the reverse"
        distances = _Distances.of(torch.where(finite, want, 0.0), torch.where(finite, have, 0.0), tolerance)
    if not bool(distances.whole_is_close):
        distance = float(distances.whole / distances.total)
        return f"relative L2 distance {distance:.3g} from the reference (tolerance {tolerance:g})"
    if not bool(distances.rows_are_close):
        return f"a row is further from the reference than {ROW:g} tolerances of {tolerance:g}"
    return ""


def _plainly_close(want: Tensor, have: Tensor, tolerance: float) -> Tensor:
    """The rule of :class:`_Distances` in a third of its passes over memory; False also where squares might leave the type."""
    (rows, columns), sums = want.shape, torch.float64 if want.dtype is torch.float64 else torch.float32
    apart = have - want  # rounds a difference of 16-bit numbers, if at all, by a small part of itself
    if columns == 1:
        apart, size = apart.abs_().flatten().to(sums), want.abs().flatten().to(sums)
    else:
        apart = torch.linalg.vector_norm(apart, dim=1, dtype=sums)
        size = torch.linalg.vector_norm(want, dim=1, dtype=sums)
    whole, total = torch.linalg.vector_norm(apart), torch.linalg.vector_norm(size)
    typical = total / math.sqrt(rows)
    worst = torch.add(apart, size, alpha=-ROW * tolerance).amax() - ROW * tolerance * typical
    close = (whole <= WHOLE * tolerance * total) & (worst <= 0)
    return torch.logical_and(close, (total < 1e15) & (total > 1e-12))


@dataclass(frozen=True)
class _Distances:
    """Scalars on the tensors' device; comparisons with NaN are false."""

    whole: Tensor
    total: Tensor
    whole_is_close: Tensor
    rows_are_close: Tensor

    @classmethod
    def of(cls, want: Tensor, have: Tensor, tolerance: float) -> _Distances:
        # Norms in units of the largest value: squares of very large or very small ones would leave float32.
        scale = want.abs().amax().clamp_min(torch.finfo(want.dtype).tiny)
        apart, size = ((have - want) / scale).square().sum(1), (want / scale).square().sum(1)
        whole, total = apart.sum().sqrt(), size.sum().sqrt()
        typical = total / math.sqrt(want.numel()) * math.sqrt(want.shape[1])
        worst = (apart.sqrt() - ROW * tolerance * (size.sqrt() + typical)).amax()
        return cls(whole, total, whole <= WHOLE * tolerance * total, worst <= 0)
