"""Perturbations by single roundings, and what they do to a module's outputs: its conditioning."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

UNIT_FLOAT32 = 2.0**-24
"""Rounding of the arithmetic that honest kernels do inside: float32 for every type up to float32."""
UNIT_FLOAT64 = 2.0**-53
_FLOAT64_STEPS = 64
"""Float64 problems are perturbed by this many roundings and the effect divided by it: one is lost in quantisation."""
_LEVELS = (1.0, 32.0)
"""Sizes of the perturbation in roundings. Where the effect of the larger one is more than proportional (a maximum
that changes place, scores that differ by less than their rounding), honest kernels are as unsure as that.
"""
_JUMP, _LEAST_COLUMNS = 8.0, 16
"""Effects that grow this much faster than the perturbation are jumps; rows of fewer columns are taken together."""
_SMALL_ELEMENTS, _DRAWS_SMALL, _DRAWS = 1 << 14, (2, 6), (1, 2)
"""Perturbations at each size. Small outputs get more: the effect on a few numbers may vanish by luck."""


def is_low_float(dtype: torch.dtype) -> bool:
    """Real floating types below float64, float8 included."""
    return dtype.is_floating_point and dtype is not torch.float64


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Float64 for floating types, complex128 for complex ones, else the type itself."""
    if is_low_float(dtype):
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype


def widen(value: Any) -> Any:
    """A float64 copy of a floating tensor, complex128 of a complex one; a clone of any other tensor; else the value."""
    if not isinstance(value, Tensor):
        return value
    target = wide_dtype(value.dtype)
    return value.detach().clone() if target is value.dtype else value.detach().to(target)


def unit_of(module: torch.nn.Module, inputs: Sequence[Any]) -> float:
    """Roundoff of the arithmetic: float64's if anything given is float64."""
    tensors = [v for v in tree_flatten(list(inputs))[0] if isinstance(v, Tensor)] + [t for _, t in tensors_of(module)]
    wide = any(t.dtype in (torch.float64, torch.complex128) for t in tensors)
    return UNIT_FLOAT64 if wide else UNIT_FLOAT32


def levels(outputs: Sequence[Tensor]) -> tuple[float, ...]:
    """Sizes of the perturbations to make, one run each."""
    largest = max((item.numel() for item in outputs), default=0)
    draws = _DRAWS_SMALL if largest <= _SMALL_ELEMENTS else _DRAWS
    return tuple(level for level, count in zip(_LEVELS, draws, strict=True) for _ in range(count))


def is_real(value: Tensor) -> bool:
    """Whether it is rounded at all: floating or complex."""
    return value.dtype.is_floating_point or value.dtype.is_complex


@dataclass(frozen=True)
class Noise:
    """Multiplies every floating number by 1 + level * unit * N(0, 1)."""

    unit: float
    seed: int
    level: float

    @property
    def scale(self) -> float:
        """Roundings that the perturbation stands for: its effect is divided by this."""
        return self.level * (_FLOAT64_STEPS if self.unit < UNIT_FLOAT32 else 1.0)

    def _perturb(self, value: Any, offset: int) -> Any:
        if not isinstance(value, Tensor) or not is_real(value):
            return value
        generator = torch.Generator(device=value.device).manual_seed(self.seed * 1009 + offset)
        wide = widen(value)
        factor = torch.empty(wide.shape, dtype=torch.float64, device=value.device)
        return wide.mul_(factor.normal_(1.0, self.unit * self.scale, generator=generator))

    def inputs(self, inputs: Sequence[Any]) -> list[Any]:
        """Perturbed float64 copies of the inputs."""
        return [self._perturb(item, index) for index, item in enumerate(inputs)]

    def module(self, module: torch.nn.Module) -> torch.nn.Module:
        """A copy of a float64 module with perturbed parameters and buffers."""
        moved = copy.deepcopy(module)
        with torch.no_grad():
            for index, (_, tensor) in enumerate(tensors_of(moved)):
                if is_real(tensor):
                    tensor.copy_(self._perturb(tensor, 500 + index))
        return moved


def tensors_of(module: torch.nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers by name."""
    return [*module.named_parameters(), *module.named_buffers()]


class Effects:
    """What perturbations did to each output: mean square a level, and other values of exact outputs.

    Everything is done in place where it can be: on a large output each pass over memory takes a millisecond.
    """

    def __init__(self, outputs: list[Tensor]) -> None:
        self.outputs = outputs
        self.alternates: list[list[Tensor]] = [[] if is_real(o) else [o] for o in outputs]
        self._squares: list[dict[float, _Squares]] = [{} for _ in outputs]

    def add(self, perturbed: list[Tensor], noise: Noise) -> None:
        """Take in one perturbed run."""
        for index, (moved, base) in enumerate(zip(perturbed, self.outputs, strict=True)):
            if is_real(base):
                self._squares[index].setdefault(noise.level, _Squares(noise.scale)).add(moved, base)
            elif noise.level == 1.0 and not torch.equal(moved, base):
                self.alternates[index].append(moved)

    def spread(self) -> list[Tensor | None]:
        """Per output the root mean square effect of one rounding, the larger of the levels. To be asked once."""
        return [_largest({level: squares.mean() for level, squares in levels.items()}) for levels in self._squares]


@dataclass
class _Squares:
    """Squared effects of the perturbations of one size, which stand for ``scale`` roundings."""

    scale: float
    total: Tensor | None = None
    count: int = 0

    def add(self, moved: Tensor, base: Tensor) -> None:
        """One more; where either is not finite, there is none."""
        effect = moved - base
        if effect.dtype.is_complex:
            effect = effect.abs()
        effect = effect.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        self.total = effect.square_() if self.total is None else self.total.addcmul_(effect, effect)
        self.count += 1

    def mean(self) -> Tensor:
        """Of one rounding. To be asked once."""
        assert self.total is not None
        share = 1.0 / (self.count * self.scale**2)
        return self.total if share == 1.0 else self.total.mul_(share)


def _largest(means: dict[float, Tensor]) -> Tensor | None:
    if not means:
        return None
    result, *others = means.values()
    if not result.numel():
        return result
    jumps = _jumps(means)
    for other in others:
        torch.maximum(result, other, out=result)
    return result.clamp_(min=jumps).sqrt_()


def _jumps(means: dict[float, Tensor]) -> float:
    """Mean square of the largest jump of a row, 0 where every effect is in proportion.

    Whether a row jumps (a near tie is decided the other way) is a matter of luck, so the largest jump counts for all.
    """
    low, high = _LEVELS
    if low not in means or high not in means:
        return 0.0
    columns = means[low].shape[-1] if means[low].ndim else 1
    shape = (-1, columns) if columns >= _LEAST_COLUMNS else (1, -1)
    small, large = means[low].reshape(shape).mean(1), means[high].reshape(shape).mean(1)
    jumping = large > _JUMP**2 * small
    return float(large[jumping].max()) * high**2 if bool(jumping.any()) else 0.0
