"""What a right answer may look like: float64 truth and the error allowed around it, per element, per row and per
output.

How to use it (the judge's flow)::

    # in the reference worker, for every set of inputs:
    native = forward(module, clones)                      # its own precision
    truth = float64_truth(module, inputs, native, ...)    # worker/truth.py
    # in the judge:
    answer = expect(RawOutputs(native, truth.outputs, truth.spread, ...), tolerance)
    result = compare(answer, got, where)                  # compare.py

The rule. Let ``t`` be the truth, ``r`` the reference's own answer, ``u`` the unit roundoff of the output's type (half
an epsilon), ``v`` that of the
arithmetic (2^-24; 2^-53 for float64), ``K`` the longest reduction, ``E`` the root mean square of ``r - t`` over a
row, and ``S`` the root mean
square change of a row when every input and parameter is perturbed by one rounding ``v`` (its conditioning). Allowed are

- per element  ``2 u |t| + 10 E + 4 sqrt(K') S + 2 v sqrt(K") |t|``  with K' = K within [16, 8192] (8192 where the
  reference multiplies
  matrices) and K" = K within [16, 16384];
- per row (L2) ``u |t|_row + 4 E sqrt(n) + 4 sqrt(K') S sqrt(n) + 2 v sqrt(K") |t|_row``;
- per output   the relative L2 error stays within TOLERANCE (default by type), or three times the reference's own if
  that is more.

``E`` makes the rule fair where the reference is inaccurate, ``S`` where the problem is ill-conditioned (cancellation,
constant rows), the last
term where positive numbers are added one after the other (the error of a sequential sum grows with sqrt(K)). A
float32 product with operands rounded
to float16 or TF32 has an error of about 2^12 S whatever its data, one split into two bfloat16 parts (three products)
about 2^6 S, into two TF32
parts about S; a sequential float32 sum of zero-mean numbers about 0.3 sqrt(K) S.
NaN, +inf and -inf must stand where the reference has them. Integers and bools are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

DEFAULT_TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 5e-3,
    torch.bfloat16: 1.5e-2,
}
FLOAT8_TOLERANCE = 5e-2
OWN_ERROR_ELEMENT, OWN_ERROR_ROW, OWN_ERROR_CAP = 10.0, 4.0, 3.0
SENSITIVITY = 4.0
SEQUENTIAL = 2.0
LEAST_TERMS, MOST_TERMS_SENSITIVITY, MOST_TERMS_SEQUENTIAL = 16, 8192, 16384
_FEW = 64
"""Below this many elements the reference's own error may vanish by luck: a typical rounding is assumed at least."""
_TYPICAL_ROUNDING = 0.4
"""Root mean square of a rounding error over numbers of all mantissas, in units of u."""

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
class Allowed:
    """Bounds of one floating output, rows being the slices along its last axis. All tensors are float64."""

    per_row: Tensor
    """(R, 1): absolute part of the element bound."""
    per_size: float
    """Part of the element bound in units of |t|."""
    row_l2: Tensor
    """(R,): bound of the L2 error of a row."""
    cap: float
    """Bound of the relative L2 error of the output."""
    own_error: float
    """Relative L2 error of the reference itself."""


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
    indices: tuple[Tensor, ...] = field(default=())
    """Inputs in which an integer output may be looked up when it names one of several equal elements."""

    @property
    def finite(self) -> bool:
        """True if the reference gave no NaN and no infinity."""
        return all(item.kinds is None for item in self.outputs)


def default_tolerance(dtype: torch.dtype) -> float:
    """TOLERANCE where a problem names none; 0 for integers and bools."""
    if dtype.is_floating_point and dtype not in DEFAULT_TOLERANCE:
        return FLOAT8_TOLERANCE
    return DEFAULT_TOLERANCE.get(dtype, 0.0)


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half an epsilon of a floating or complex type."""
    return torch.finfo(dtype).eps / 2


def arithmetic_unit(dtype: torch.dtype) -> float:
    """Roundoff of the arithmetic that honest kernels use for outputs of this type."""
    return 2.0**-53 if dtype in (torch.float64, torch.complex128) else 2.0**-24


def smallest_step(dtype: torch.dtype) -> float:
    """Absolute error that underflow may cause: float16 and float8 keep subnormals, other kernels may flush them to
    zero.
    """
    info = torch.finfo(dtype)
    keeps_subnormals = dtype is torch.float16 or dtype.itemsize == 1
    return float(info.smallest_normal * info.eps if keeps_subnormals else info.smallest_normal)


def as_rows(tensor: Tensor) -> Tensor:
    """(R, C) view or copy: rows along the last axis; complex numbers as pairs of reals."""
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj().contiguous())
        tensor = tensor.flatten(-2) if tensor.ndim > 1 else tensor
    if tensor.ndim == 0:
        return tensor.reshape(1, 1)
    if tensor.numel() == 0:
        return tensor.reshape(0, max(1, tensor.shape[-1]))
    return tensor.reshape(-1, tensor.shape[-1])


def nonfinite_kinds(values: Tensor) -> Tensor | None:
    """int8 classes of :attr:`OutputAnswer.kinds`, or None if every element is finite."""
    if not values.dtype.is_floating_point or bool(torch.isfinite(_readable(values)).all()):
        return None
    values = _readable(values)
    kinds = torch.zeros(values.shape, dtype=torch.int8, device=values.device)
    kinds[torch.isnan(values)] = 1
    kinds[values == math.inf] = 2
    kinds[values == -math.inf] = 3
    return kinds


def _readable(values: Tensor) -> Tensor:
    """Float8 has few operators: read it as float32."""
    return values.float() if values.dtype.itemsize == 1 else values


def expect(
    raw: RawOutputs,
    tolerance: float | None,
    *,
    nonfinite: NonFinite = "match",
    depends: Sequence[Tensor | None] = (),
    indices: Sequence[Tensor] = (),
) -> Answer:
    """Turn what the reference worker sent into bounds. ``tolerance`` None takes the default of each output's type.

    Raises:
        ValueError: if truth and native outputs do not have the same shapes.
    """
    outputs = []
    for index, native in enumerate(raw.native):
        if tuple(raw.truth[index].shape) != tuple(native.shape):
            raise ValueError(
                f"output {index}: truth has shape {tuple(raw.truth[index].shape)}, not {tuple(native.shape)}"
            )
        mask = depends[index] if index < len(depends) else None
        outputs.append(_expect_one(raw, index, tolerance, mask))
    return Answer(tuple(outputs), nonfinite, raw.method, tuple(indices))


def _expect_one(raw: RawOutputs, index: int, tolerance: float | None, depends: Tensor | None) -> OutputAnswer:
    native = raw.native[index]
    shape, dtype = tuple(native.shape), native.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        others = tuple(raw.alternates[index]) if index < len(raw.alternates) else ()
        alternates = tuple(other.reshape(-1) for other in others if not torch.equal(other, native))
        return OutputAnswer(shape, dtype, None, native.reshape(-1), None, alternates)
    own, truth = as_rows(native), as_rows(raw.truth[index])
    kinds = nonfinite_kinds(own)
    spread = raw.spread[index]
    truth, allowed = _allowed(own, truth, None if spread is None else as_rows(spread.double()), kinds, raw, dtype)
    if tolerance is None:
        tolerance = default_tolerance(dtype)
    allowed = replace(allowed, cap=max(tolerance, OWN_ERROR_CAP * allowed.own_error))
    mask = None if depends is None else as_rows(depends)
    return OutputAnswer(shape, dtype, allowed, truth, kinds, depends=mask)


def _allowed(
    own: Tensor, truth: Tensor, spread: Tensor | None, kinds: Tensor | None, raw: RawOutputs, dtype: torch.dtype
) -> tuple[Tensor, Allowed]:
    """Bounds before the cap, and the truth with zeros where it or the reference is not finite."""
    unit, step = unit_roundoff(dtype), arithmetic_unit(dtype)
    own64, truth = own.double(), truth.double()
    if kinds is not None or not bool(torch.isfinite(truth).all()):
        keep = torch.isfinite(own64) & torch.isfinite(truth)
        truth, own64 = truth.where(keep, 0.0), own64.where(keep, 0.0)
        spread = None if spread is None else spread.where(keep, 0.0)
    columns = max(1, truth.shape[1])
    size = _row_norm(truth)
    error = _row_norm(own64 - truth)
    own_relative = _ratio(error, size)
    least = max(own_relative, _TYPICAL_ROUNDING * unit) if truth.numel() < _FEW else own_relative
    error = torch.maximum(error, size * least)
    terms = raw.reduction if raw.reduction > 0 else max(16, truth.shape[1])
    wobble = _wobble(spread, size, truth, step)
    least = MOST_TERMS_SENSITIVITY if raw.products else LEAST_TERMS
    wobble = wobble * (SENSITIVITY * math.sqrt(min(max(terms, least), MOST_TERMS_SENSITIVITY)))
    sequential = SEQUENTIAL * step * math.sqrt(min(max(terms, LEAST_TERMS), MOST_TERMS_SEQUENTIAL))
    floor = smallest_step(dtype)
    root = math.sqrt(columns)
    per_row = (OWN_ERROR_ELEMENT * error + wobble) / root + floor
    row_l2 = (unit + sequential) * size + OWN_ERROR_ROW * error + wobble + floor * root
    return truth, Allowed(per_row.unsqueeze(1), 2 * unit + sequential, row_l2, 0.0, own_relative)


def _row_norm(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms


def _ratio(part: Tensor, whole: Tensor) -> float:
    total = float(torch.linalg.vector_norm(whole))
    return float(torch.linalg.vector_norm(part)) / total if total > 0 else 0.0


def _wobble(spread: Tensor | None, size: Tensor, truth: Tensor, step: float) -> Tensor:
    """Row norms of the perturbation's effect, at least half its share over the whole output; without one, 16
    roundings of the largest element.
    """
    if spread is not None:
        effect = _row_norm(spread)
        return torch.maximum(effect, size * (0.5 * _ratio(effect, size)))
    largest = truth.abs().amax(dim=1) if truth.numel() else size
    return largest * (step * math.sqrt(max(1, truth.shape[1])))
