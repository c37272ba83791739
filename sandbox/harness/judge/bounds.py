"""How far from the truth an answer may lie: the numbers behind the rule that ``oracle.py`` states."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

OWN_ERROR_ELEMENT, OWN_ERROR_ROW, OWN_ERROR_CAP = 10.0, 4.0, 3.0
"""Multiples of the reference's own error: one element (tails of many), a row's L2 norm, an output's L2 norm."""
SENSITIVITY, LEAST_TERMS, MOST_TERMS_SENSITIVITY = 4.0, 16, 16384
CONDITIONING_CAP = 1.5
"""Of an output's L2 norm, as SENSITIVITY of a row's: few elements, of which a large mean was taken off, may all be off alike, by
as much as the order of the sum decides."""
INPUT_ROUNDING_ELEMENT, INPUT_ROUNDING_ROW = 8.0, 2.0
TAIL_ELEMENT, TAIL_ROW = 0.6, 1.0 / 3.0
"""Of intermediates rounded to the type of the inputs, in units of the effect of rounding the inputs: at least the former, and the
latter times the logarithm of how many elements or rows there are. A large score of attention that is rounded once moves a row by
more than its many factors rounded each (they average), and how much more has an exponential tail: with bfloat16 scores the worst
of n rows is off by about ln(n) / 4, of which the other terms allow 1.7. More than 0.6 would bring operands of three bits fewer
near the bound (a product of 10^7 elements: ratio 1.2)."""
SEQUENTIAL, SYSTEMATIC, BIASED_TERMS, MOST_TERMS_SEQUENTIAL = 2.0, 0.5, 256, 16384
SCALE_ROUNDINGS, SCALE_MOST, SCALE_NOISE, _COARSE = 1.25, 2.0**-8, 4.0, 2.0**-11
"""Of a common factor: roundings, the largest that counts, deviations of its estimate; from this roundoff on."""
_FEW, _SAMPLE = 64, 4096
"""Below this many elements the reference's own error may vanish by luck: a typical rounding is assumed at least."""
_TYPICAL_ROUNDING = 0.4
"""Root mean square of a rounding error over numbers of all mantissas, in units of the roundoff."""


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
    scale: float = math.inf
    """Bound of the factor that fits the answer to the truth, less one: rounding has no direction."""


@dataclass(frozen=True)
class Reduction:
    """What is added up on the way to an output: ``terms`` 0 is unknown."""

    terms: int
    products: bool = False
    nearly_constant: bool = False

    def sensitivity(self, columns: int) -> float:
        """Multiple of the conditioning that the order of summation may cost."""
        least = MOST_TERMS_SENSITIVITY if self.products else LEAST_TERMS
        return SENSITIVITY * math.sqrt(min(max(self._terms(columns), least), MOST_TERMS_SENSITIVITY))

    def conditioning(self, columns: int) -> float:
        """Multiple of the conditioning that an output as a whole may be off by."""
        return CONDITIONING_CAP * math.sqrt(min(max(self._terms(columns), LEAST_TERMS), MOST_TERMS_SENSITIVITY))

    def sequential(self, columns: int) -> float:
        """Roundings of the result that a sequential sum may cost."""
        counted = min(max(self._terms(columns), LEAST_TERMS), MOST_TERMS_SEQUENTIAL)
        biased = counted if self.nearly_constant else min(counted, BIASED_TERMS)
        return max(SEQUENTIAL * math.sqrt(counted), SYSTEMATIC * biased)

    def _terms(self, columns: int) -> int:
        return self.terms if self.terms > 0 else columns


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half an epsilon of a floating or complex type."""
    return torch.finfo(dtype).eps / 2


def arithmetic_unit(dtype: torch.dtype) -> float:
    """Roundoff of the arithmetic that honest kernels use for outputs of this type."""
    return 2.0**-53 if dtype in (torch.float64, torch.complex128) else 2.0**-24


def storage_unit(dtype: torch.dtype, inputs: Iterable[Tensor], tolerance: float) -> float:
    """Roundoff of the least precise floating input, between the output's own and the tolerance."""
    own = unit_roundoff(dtype)
    coarsest = max((unit_roundoff(v.dtype) for v in inputs if v.dtype.is_floating_point), default=own)
    return max(own, min(coarsest, tolerance))


def smallest_step(dtype: torch.dtype) -> float:
    """Absolute error that underflow may cause: float16 and float8 keep subnormals, others may flush them to zero."""
    info = torch.finfo(dtype)
    keeps_subnormals = dtype is torch.float16 or dtype.itemsize == 1
    return float(info.smallest_normal * info.eps if keeps_subnormals else info.smallest_normal)


def readable(values: Tensor) -> Tensor:
    """Float8 has few operators: read it as float32."""
    return values.float() if values.dtype.is_floating_point and values.dtype.itemsize == 1 else values


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
    """int8: 0 finite, 1 NaN, 2 +inf, 3 -inf; None if every element is finite."""
    if not values.dtype.is_floating_point:
        return None
    values = readable(values)
    if bool(torch.isfinite(values).all()):
        return None
    kinds = torch.zeros(values.shape, dtype=torch.int8, device=values.device)
    kinds[torch.isnan(values)] = 1
    kinds[values == math.inf] = 2
    kinds[values == -math.inf] = 3
    return kinds


def nearly_constant(value: Tensor) -> bool:
    """Whether sums over a floating input may be off systematically, by a sample of evenly spaced elements.

    Equal terms round alike, so that a sequential sum of K of them is off by up to K v / 2, not by sqrt(K) v. True where
    one value makes up a tenth of the elements, or all are so close (to zero, or to each other) that any smooth function
    of them is nearly constant.
    """
    if not value.dtype.is_floating_point or value.numel() < 8:
        return False
    flat = value.reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLE)].double().nan_to_num().sort().values
    reach = max(1, sample.numel() // 10)
    low, high = float(sample[reach]), float(sample[-1 - reach])
    largest = max(abs(low), abs(high))
    return high - low < 1e-3 * largest or largest < 1e-2 or bool((sample[reach:] == sample[:-reach]).any())


def allowed_errors(
    own: Tensor, truth: Tensor, spread: Tensor | None, reduction: Reduction, dtype: torch.dtype, storage: float
) -> Allowed:
    """Bounds for rows of finite numbers: the reference's own in any type, the truth and the effect of one rounding in float64.

    ``storage`` is :func:`storage_unit`; the cap is what the conditioning asks for, where that is known.
    """
    columns = max(1, truth.shape[1])
    size, error = _row_norm(truth), _row_norm(own - truth)
    own_relative = _ratio(error, size)
    few = truth.numel() < _FEW
    least = max(own_relative, _TYPICAL_ROUNDING * unit_roundoff(dtype)) if few else own_relative
    error = torch.maximum(error, size * least)
    step = arithmetic_unit(dtype)
    effect = _effect(spread, size, truth, step)
    summing, coarse = reduction.sensitivity(columns), storage / step if storage > step else 0.0
    sequential = step * reduction.sequential(columns)
    floor, root = smallest_step(dtype), math.sqrt(columns)
    of_element = max(INPUT_ROUNDING_ELEMENT, TAIL_ELEMENT * math.log(max(1, truth.numel()))) * coarse
    of_row = max(INPUT_ROUNDING_ROW, TAIL_ROW * math.log(max(1, truth.shape[0]))) * coarse
    per_row = (OWN_ERROR_ELEMENT * error + (summing + of_element) * effect) / root + floor
    row_l2 = (storage + sequential) * size + OWN_ERROR_ROW * error + (summing + of_row) * effect + floor * root
    scale = _scale_bound(truth, storage, own_relative + coarse * _ratio(effect, size))
    cap = 0.0 if spread is None else reduction.conditioning(columns) * _ratio(effect, size)
    return Allowed(per_row.unsqueeze(1), 2 * storage + sequential, row_l2, cap, own_relative, scale)


def _scale_bound(truth: Tensor, storage: float, noise: float) -> float:
    """A common factor of one per cent hides in the bounds of coarse types; over many elements it shows.

    One rounding of something that all elements share, and the deviation of the fit: the relative error of an element
    over the square root of how many count, (sum t^2)^2 / sum t^4.
    """
    if storage < _COARSE:
        return math.inf
    squares = truth.square()
    total = float(squares.sum())
    if total <= 0:
        return math.inf
    share = math.sqrt(float(squares.square_().sum())) / total
    return SCALE_ROUNDINGS * min(storage, SCALE_MOST) + SCALE_NOISE * noise * share


def _row_norm(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms


def _ratio(part: Tensor, whole: Tensor) -> float:
    total = float(torch.linalg.vector_norm(whole))
    return float(torch.linalg.vector_norm(part)) / total if total > 0 else 0.0


def _effect(spread: Tensor | None, size: Tensor, truth: Tensor, step: float) -> Tensor:
    """Row norms of the effect of one rounding, at least half its share over the whole output.

    Where it was not taken (no float64), a rounding of the largest element in every place.
    """
    if spread is not None:
        effect = _row_norm(spread)
        return torch.maximum(effect, size * (0.5 * _ratio(effect, size)))
    largest = truth.abs().amax(dim=1) if truth.numel() else size
    return largest * (step * math.sqrt(max(1, truth.shape[1])))
