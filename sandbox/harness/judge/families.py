"""Input families: values that a kernel must get right, derived from what the problem's ``get_inputs`` draws.

How to use it::

    profiles = profile_inputs([draw_1, draw_2, ...])              # two or more draws with different seeds
    for name in family_names(profiles, domain):                   # "declared" alone where DOMAIN is declared
        inputs = draw(name, profiles, fresh_draw, generator)      # fresh_draw: a new draw of get_inputs

``fresh_draw`` fills in what no family may touch: scalars, sorted or unique integers, masks, structured constants. A
joint family that the
reference does not survive (NaN or infinity where ``get_inputs`` makes none) is to be tried on one operand at a time
(``only=``) and else
left out: see :func:`survives`. Planted NaN and infinities come from ``planting.py``, small changes from ``changes.py``.

All functions are pure; randomness comes from the generator given, which must live on the tensors' device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from tilecast.sandbox.harness.judge.input_profiles import InputProfile

DECLARED = "declared"
_LARGE = {torch.float16: 50.0, torch.float64: 1e6}
_OFFSET = {torch.float16: 30.0, torch.bfloat16: 30.0}
_TINY = {torch.float16: 1e-3}
_FLOAT8_SCALE = {"large": 16.0, "offset": 8.0, "tiny": 0.05}


def _standard(example: Tensor, generator: Generator) -> Tensor:
    """N(0, 1) in a type that has arithmetic: float64 for float64, else float32 (complex alike)."""
    wide = torch.float64 if example.dtype in (torch.float64, torch.complex128) else torch.float32
    if example.dtype.is_complex:
        wide = torch.complex128 if wide is torch.float64 else torch.complex64
    return torch.empty(example.shape, dtype=wide, device=example.device).normal_(generator=generator)


def _uniform(example: Tensor, generator: Generator, rows_only: bool = False) -> Tensor:
    shape = (*example.shape[:-1], 1) if rows_only and example.ndim else tuple(example.shape)
    return torch.rand(shape, generator=generator, device=example.device)


def _scale(name: str, example: Tensor) -> float:
    if example.dtype.is_floating_point and example.dtype.itemsize == 1:
        return _FLOAT8_SCALE[name]
    table, usual = {"large": (_LARGE, 1e4), "offset": (_OFFSET, 3000.0), "tiny": (_TINY, 1e-6)}[name]
    return table.get(example.dtype, usual)


def _normal(example: Tensor, generator: Generator) -> Tensor:
    return _standard(example, generator)


def _negative(example: Tensor, generator: Generator) -> Tensor:
    return -(_uniform(example, generator) + 0.5)


def _large(example: Tensor, generator: Generator) -> Tensor:
    return _standard(example, generator) * _scale("large", example)


def _wide_normal(example: Tensor, generator: Generator) -> Tensor:
    """N(0, 16²), the range where exponentials still differ from one-hot."""
    return _standard(example, generator) * 16.0


def _tiny(example: Tensor, generator: Generator) -> Tensor:
    return _standard(example, generator) * _scale("tiny", example)


def _zeros(example: Tensor, generator: Generator) -> Tensor:
    return torch.zeros_like(_standard(example, generator))


def _offset(example: Tensor, generator: Generator) -> Tensor:
    return _standard(example, generator) + _scale("offset", example)


def _constant_rows(example: Tensor, generator: Generator) -> Tensor:
    """Half of the rows constant (small binary fractions, whose sums are exact), the others N(0, 1); single rows are
    constant.
    """
    levels = torch.tensor([0.0, 1.0, -0.5, 2.0, -4.0, 0.25], device=example.device)
    pick = (_uniform(example, generator, rows_only=True) * len(levels)).long()
    constant = _uniform(example, generator, rows_only=True) < 0.5
    if constant.numel() == 1:
        constant = torch.ones_like(constant)
    return torch.where(constant, levels[pick], _standard(example, generator))


def _sparse(example: Tensor, generator: Generator) -> Tensor:
    return _standard(example, generator) * (_uniform(example, generator) < 0.05)


def _one_hot_rows(example: Tensor, generator: Generator) -> Tensor:
    """One element of each row is not zero."""
    if example.ndim == 0:
        return _standard(example, generator)
    place = (_uniform(example, generator, rows_only=True) * example.shape[-1]).long()
    return torch.zeros_like(_standard(example, generator)).scatter_(-1, place, 1.5)


def _affine(example: Tensor, generator: Generator) -> Tensor:
    """a N + b with random a (0.1 to 10) and b, as a guard against constants tuned to a distribution."""
    a, b = (float(x) for x in torch.rand(2, generator=generator, device=example.device))
    scale = 10 ** (2 * a - 1)
    return _standard(example, generator) * scale + (4 * b - 2) * scale


def _scaled_rows(example: Tensor, generator: Generator) -> Tensor:
    """N(0, 1) times a power of two of each row's own (2^-6 to 2^6; float16 and float8 2^-2 to 2^2)."""
    reach = 2.0 if example.dtype is torch.float16 or example.dtype.itemsize == 1 else 6.0
    exponent = ((_uniform(example, generator, rows_only=True) * 2 - 1) * reach).round()
    return _standard(example, generator) * torch.exp2(exponent)


FLOAT_FAMILIES: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "normal": _normal,
    "negative": _negative,
    "large": _large,
    "wide": _wide_normal,
    "tiny": _tiny,
    "zeros": _zeros,
    "offset": _offset,
    "constant-rows": _constant_rows,
    "sparse": _sparse,
    "one-hot-rows": _one_hot_rows,
    "affine": _affine,
    "scaled-rows": _scaled_rows,
}


UNEQUAL = "one-small"
"""N(0, 1) in all operands but one, which is small beside them, and still counts in its own precision."""
_LEAST_SHIFT, _MOST_SHIFT = 2, 12
"""Powers of two by which it is smaller: as many as leave it twice a rounding of the others, within these."""


def family_names(profiles: Sequence[InputProfile], domain: str) -> list[str]:
    """Families that apply: ``declared`` always, the others only for an open domain with something to vary."""
    if domain == DECLARED or not any(p.variable for p in profiles):
        return [DECLARED]
    return [DECLARED, *FLOAT_FAMILIES, *([UNEQUAL] if len(scalable(profiles)) > 1 else [])]


def scalable(profiles: Sequence[InputProfile]) -> list[int]:
    """Operands that can be small beside others."""
    return [index for index, profile in enumerate(profiles) if profile.kind in ("float", "positive")]


def _unequal(
    profiles: Sequence[InputProfile], fresh: Sequence[Any], generator: Generator, only: int | None
) -> list[Any]:
    inputs, operands = draw("normal", profiles, fresh, generator), scalable(profiles)
    small = operands[below(len(operands), generator)] if only is None else only
    value = inputs[small]
    digits = -round(math.log2(torch.finfo(value.dtype).eps))
    most = max(_LEAST_SHIFT, min(digits - 1, _MOST_SHIFT))
    least = max(_LEAST_SHIFT, min(most - 2, _MOST_SHIFT // 2))
    inputs[small] = (_wide(value) * 2.0 ** -(least + below(most - least + 1, generator))).to(value.dtype)
    return inputs


def _wide(value: Tensor) -> Tensor:
    """In a type that has arithmetic."""
    return value.float() if value.dtype.is_floating_point and value.dtype.itemsize == 1 else value


def below(limit: int, generator: Generator) -> int:
    """A number from zero on, below ``limit`` (zero where that is less than two)."""
    return int(torch.randint(max(1, limit), (1,), generator=generator, device=generator.device))


def draw(
    name: str,
    profiles: Sequence[InputProfile],
    fresh: Sequence[Any],
    generator: Generator,
    only: int | None = None,
) -> list[Any]:
    """Inputs of a family. ``fresh`` is a new draw of ``get_inputs``; ``only`` restricts the change to one operand.

    Raises:
        KeyError: for a name that is no family.
    """
    if name == DECLARED:
        return list(fresh)
    if name == UNEQUAL:
        return _unequal(profiles, fresh, generator, only)
    make = FLOAT_FAMILIES[name]
    return [
        _draw_one(name, make, profile, value, generator) if only is None or only == index else value
        for index, (profile, value) in enumerate(zip(profiles, fresh, strict=True))
    ]


def _draw_one(
    name: str, make: Callable[[Tensor, Generator], Tensor], profile: InputProfile, value: Any, generator: Generator
) -> Any:
    if profile.kind == "fixed":
        return value
    if profile.kind == "index":
        return _draw_index(name, profile, value, generator)
    if profile.kind == "bool":
        density = {"zeros": 0.05, "negative": 0.95}.get(name, profile.density)
        return _uniform(value, generator) < density
    made = make(value, generator)
    if profile.kind == "probability":
        made = torch.softmax(made.clamp(-50, 50), dim=-1)
    return clamp_to(made, value.dtype).to(value.dtype)


def _draw_index(name: str, profile: InputProfile, value: Tensor, generator: Generator) -> Tensor:
    """Values that were seen, in any number: all alike in the constant families, any mix otherwise."""
    assert profile.pool is not None
    pool = profile.pool.to(value.device)
    if name in ("zeros", "one-hot-rows"):
        return torch.full_like(value, int(pool[0 if name == "zeros" else -1]))
    rows_only = name == "constant-rows"
    pick = (_uniform(value, generator, rows_only=rows_only) * len(pool)).long().clamp_(max=len(pool) - 1)
    return pool[pick].to(value.dtype).expand(value.shape).contiguous()


def clamp_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Keep finite values finite in a narrow type (float8 conversions overflow to NaN)."""
    if dtype.is_complex or not dtype.is_floating_point or dtype.itemsize > 2:
        return values
    top = torch.finfo(dtype).max
    return values.clamp(-top, top)


def survives(native: Sequence[Tensor], declared_is_finite: bool) -> bool:
    """False if the family is to be left out: the reference gives NaN or infinity though it does not on
    ``get_inputs``' own values.
    """
    return not declared_is_finite or all(is_finite(item) for item in native)


def is_finite(value: Tensor) -> bool:
    """True for exact types and for finite floats (float8 included)."""
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return True
    return bool(torch.isfinite(_wide(value)).all())
