"""What a right answer may look like: float64 truth and the error allowed around it, per element, per row and per
output.

How to use it (the judge's flow)::

    # in the reference worker, for every set of inputs:
    native = forward(module, clones)                      # its own precision
    truth = float64_truth(module, inputs, native, ...)    # worker/truth.py
    # in the judge:
    answer = expect(RawOutputs(native, truth.outputs, truth.spread, ...), tolerance)
    result = compare(answer, got, where)                  # compare.py

The rule. Let ``t`` be the truth, ``r`` the reference's own answer, ``u`` the unit roundoff of the output's type (half an
epsilon), ``v`` that of the arithmetic (2^-24; 2^-53 for float64), ``w`` that of the least precise input, but no more than
TOLERANCE (at least ``u``), ``K`` the longest reduction, ``E`` the root mean square of ``r - t`` over a row, and ``S`` that
of the change of a row when every input and parameter is perturbed by one rounding ``v`` (its conditioning). Allowed are

- per element  ``2 w |t| + 10 E + (4 sqrt(K') + A w / v) S + v Q |t|``, K' being K within [16, 16384] (16384 where the
  reference multiplies matrices), and ``Q`` the larger of 2 sqrt(K) and min(K, 256) / 2, K within [16, 16384];
- per row (L2) ``w |t| + 4 E + (4 sqrt(K') + B w / v) S + v Q |t|``, each term as the norm of the row; ``A`` is the larger
  of 8 and 0.6 ln(elements of the output), ``B`` the larger of 2 and 1/3 ln(its rows);
- per output   a relative L2 error of TOLERANCE (default by type), of three times the reference's own or of 1.5 sqrt(K) S over the
  output's norm, K within [16, 16384], whichever is most; and in types of eleven bits or fewer a common factor within 1.25 w
  (at most 2^-8) of one, beyond the noise of its fit.

``E`` makes the rule fair where the reference is inaccurate, ``S`` where the problem is ill-conditioned (cancellation,
constant rows); ``w`` lets a kernel round an intermediate to the type of its inputs once: one made of many factors (a
score of attention) may move a row by several S, with an exponential tail, so that the worst of many grows with the
logarithm of how many; ``Q`` is for numbers of one sign added one after the other. A float32 product with operands rounded
to float16 or TF32 has an error of about 2^12 S whatever its data, one split into two bfloat16 parts (three products) about
2^6 S, into two TF32 parts about S; a sequential float32 sum of zero-mean numbers about 0.3 sqrt(K) S. NaN, +inf and -inf
must stand where the reference has them; where float64 alone is finite, and within the type's range, a number is accepted
too if it is right to ``2 w |t| + v Q |t|`` and the smaller of the row's other terms and its mean size times the cap.
Integers and bools are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.bounds import (
    OWN_ERROR_CAP,
    Allowed,
    Reduction,
    allowed_errors,
    as_rows,
    nearly_constant,
    nonfinite_kinds,
    readable,
    storage_unit,
)

DEFAULT_TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 5e-3,
    torch.bfloat16: 1.5e-2,
}
FLOAT8_TOLERANCE = 5e-2

NonFinite = Literal["match", "nan", "inf"]
"""``match``: positions must agree exactly. ``nan``/``inf``: planted ones; see :class:`Answer`."""


@dataclass(frozen=True)
class RawOutputs:
    """What the reference worker sent back for one set of inputs: lists in output order, devices of the judge's
    choice.
    """

    native: Sequence[Tensor]
    truth: Sequence[Tensor]
    spread: Sequence[Tensor | None]
    alternates: Sequence[Sequence[Tensor]] = ()
    method: str = "promoted"
    reduction: int = 1
    products: bool = False
    """True if the reference multiplies matrices (or convolves): operands may be split into several of lower
    precision.
    """


@dataclass(frozen=True)
class OutputAnswer:
    """Everything needed to judge one output; ``allowed`` is None for exact types."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    allowed: Allowed | None
    truth: Tensor
    """(R, C) float64 with zeros where the reference is not finite; the exact values for exact types (flat)."""
    kinds: Tensor | None
    """(R, C) int8: 0 finite, 1 NaN, 2 +inf, 3 -inf, or None if all is finite."""
    alternates: tuple[Tensor, ...] = ()
    depends: Tensor | None = None
    """(R, C) bool, for planted NaN or inf: which elements depend on a planted one."""
    recovered: Tensor | None = None
    """(R, C) float64: the truth where the reference alone is not finite, elsewhere NaN; None if there is no such element."""
    undecided: Tensor | None = None
    """(R, C) bool, for planted NaN or inf: where the reference is finite and its float64 run is not; any value passes."""

    def recovers(self, values: Tensor, start: int) -> Tensor:
        """(r, C) bool: which float64 ``values`` of the rows from ``start`` on are right where the reference is not finite.

        The rules for rows and outputs do not see these elements, so the cap holds for each of them.
        """
        assert self.recovered is not None and self.allowed is not None
        rows = slice(start, start + values.shape[0])
        recovered, size = self.recovered[rows], self.truth[rows].square().mean(1, keepdim=True).sqrt_()
        limit = recovered.abs().mul_(self.allowed.per_size)
        limit += torch.minimum(self.allowed.per_row[rows], self.allowed.cap * size)
        return (values - recovered).abs() <= limit  # NaN is not

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Answer:
    """The expected outputs for one set of inputs.

    With ``nonfinite`` other than ``match`` (inputs with planted NaN or inf) a NaN or infinity of the reference must
    reach the candidate's output only
    where that output truly depends on a planted element, and a candidate may show NaN where the reference hides it
    (``0 * x`` for a mask):
    both are common among honest kernels.
    """

    outputs: tuple[OutputAnswer, ...]
    nonfinite: NonFinite = "match"
    method: str = "promoted"
    inputs: tuple[Tensor, ...] = field(default=())
    """Where an integer output may be looked up when it names one of several equal elements."""

    @property
    def finite(self) -> bool:
        """True if the reference gave no NaN and no infinity."""
        return all(item.kinds is None for item in self.outputs)


def default_tolerance(dtype: torch.dtype) -> float:
    """TOLERANCE where a problem names none; 0 for integers and bools."""
    if dtype.is_floating_point and dtype not in DEFAULT_TOLERANCE:
        return FLOAT8_TOLERANCE
    return DEFAULT_TOLERANCE.get(dtype, 0.0)


def expect(
    raw: RawOutputs,
    tolerance: float | None,
    *,
    nonfinite: NonFinite = "match",
    depends: Sequence[Tensor | None] = (),
    inputs: Sequence[Any] = (),
) -> Answer:
    """Turn what the reference worker sent into bounds. ``tolerance`` None takes the default of each output's type.

    ``inputs`` are those the outputs belong to: integer outputs may name any of several equal elements of them, and sums
    over nearly constant inputs may be off systematically (see :func:`nearly_constant`).

    Raises:
        ValueError: if truth and native outputs do not have the same shapes.
    """
    tensors = tuple(value for value in inputs if isinstance(value, Tensor))
    constant = any(nearly_constant(value) for value in tensors)
    reduction = Reduction(raw.reduction, raw.products, constant)
    context = _Context(tolerance, tensors, reduction, planted=nonfinite != "match")
    outputs = []
    for index, native in enumerate(raw.native):
        if tuple(raw.truth[index].shape) != tuple(native.shape):
            raise ValueError(
                f"output {index}: truth has shape {tuple(raw.truth[index].shape)}, not {tuple(native.shape)}"
            )
        mask = depends[index] if index < len(depends) else None
        outputs.append(_expect_one(raw, index, context, mask))
    return Answer(tuple(outputs), nonfinite, raw.method, tensors)


@dataclass(frozen=True)
class _Context:
    """What all outputs of one answer share."""

    tolerance: float | None
    inputs: tuple[Tensor, ...]
    reduction: Reduction
    planted: bool = False

    def tolerance_of(self, dtype: torch.dtype) -> float:
        return default_tolerance(dtype) if self.tolerance is None else self.tolerance


def _expect_one(raw: RawOutputs, index: int, context: _Context, depends: Tensor | None) -> OutputAnswer:
    native = raw.native[index]
    shape, dtype = tuple(native.shape), native.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        others = tuple(raw.alternates[index]) if index < len(raw.alternates) else ()
        alternates = tuple(other.reshape(-1) for other in others if not torch.equal(other, native))
        return OutputAnswer(shape, dtype, None, native.reshape(-1), None, alternates)
    own, truth = readable(as_rows(native)), as_rows(raw.truth[index]).double()
    kinds, spread = nonfinite_kinds(own), raw.spread[index]
    spread = None if spread is None else as_rows(spread.double())
    recovered = None if kinds is None else _recovered(kinds, truth, dtype)
    undecided = None
    if kinds is not None or not bool(torch.isfinite(truth).all()):
        own = own.double()
        # Float64 takes another way through the reference there (a mask that is added, where a fused kernel selects).
        alone = torch.isfinite(own) & ~torch.isfinite(truth)
        if context.planted:
            undecided = alone
        else:
            truth = truth.where(~alone, own)
        keep = torch.isfinite(own) & torch.isfinite(truth)
        truth, own = truth.where(keep, 0.0), own.where(keep, 0.0)
        spread = None if spread is None else spread.where(keep, 0.0)
    tolerance = context.tolerance_of(dtype)
    storage = storage_unit(dtype, context.inputs, tolerance)
    allowed = allowed_errors(own, truth, spread, context.reduction, dtype, storage)
    allowed = replace(allowed, cap=max(tolerance, OWN_ERROR_CAP * allowed.own_error, allowed.cap))
    depends = None if depends is None else as_rows(depends)
    return OutputAnswer(shape, dtype, allowed, truth, kinds, depends=depends, recovered=recovered, undecided=undecided)


def _recovered(kinds: Tensor, truth: Tensor, dtype: torch.dtype) -> Tensor | None:
    found = (kinds != 0) & (truth.abs() <= torch.finfo(dtype).max)
    return truth.where(found, math.nan) if bool(found.any()) else None
