"""Small changes between calls: one element, one operand, another layout, another number of rows, other parameters.

Each helper returns new inputs that stay in the domain their profiles describe; the reference is then run on exactly
those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from tilecast.sandbox.harness.judge.families import below, clamp_to
from tilecast.sandbox.harness.judge.input_profiles import InputProfile

LayoutKind = Literal["contiguous", "offset-aligned", "offset-unaligned", "padded-rows", "column-major"]
ALIGNED_BYTES = 256
_EXCHANGE_TRIES = 6


def change_elements(
    profiles: Sequence[InputProfile],
    inputs: Sequence[Any],
    donor: Sequence[Any],
    generator: Generator,
    operand: int | None = None,
) -> list[Any] | None:
    """Change one to three elements of one operand, sometimes its very last; None if no operand may change.

    Floats of an open kind move by about their own spread; everything else takes the ``donor``'s element (another
    draw) at that place. Half of the time two elements change places instead, which leaves sums and moments as they were:
    who keeps answers by a checksum takes the new contents for the old.
    """
    choices = [i for i, p in enumerate(profiles) if p.variable and isinstance(inputs[i], Tensor) and inputs[i].numel()]
    choices = [i for i in choices if operand is None or i == operand]
    if not choices:
        return None
    index = choices[below(len(choices), generator)]
    flat = inputs[index].clone().reshape(-1)
    other = donor[index].reshape(-1)
    if below(2, generator) == 0 and _exchange(flat, inputs[index].shape, generator):
        return [flat.reshape(inputs[index].shape) if i == index else v for i, v in enumerate(inputs)]
    places = {below(flat.numel(), generator) for _ in range(1 + below(3, generator))}
    if below(4, generator) == 0:
        places = {flat.numel() - 1}
    for place in places:
        flat[place] = _other_value(profiles[index], flat, other, place, generator)
    return [flat.reshape(inputs[index].shape) if i == index else v for i, v in enumerate(inputs)]


def _exchange(flat: Tensor, shape: Sequence[int], generator: Generator) -> bool:
    """Let two different elements, half of the time of one row, change places; False if a few tries find none."""
    width = shape[-1] if shape else 1
    for _ in range(_EXCHANGE_TRIES):
        first = below(flat.numel(), generator)
        within = below(2, generator) == 0
        second = first // width * width + below(width, generator) if within else below(flat.numel(), generator)
        if bool(flat[first] != flat[second]):
            flat[first], flat[second] = flat[second].clone(), flat[first].clone()
            return True
    return False


def _other_value(profile: InputProfile, flat: Tensor, donor: Tensor, place: int, generator: Generator) -> Tensor:
    """A value in the domain that differs from the one in place, if the donor has one within a few tries."""
    for offset in (0, 1, 7, 101):
        candidate = donor[(place + offset) % donor.numel()]
        if bool(candidate != flat[place]):
            return candidate
    if profile.kind != "float" or not flat.dtype.is_floating_point:
        return donor[place]
    moved = flat[place].double() + 1.0 + below(3, generator)
    return clamp_to(moved, flat.dtype).to(flat.dtype)


def change_operand(inputs: Sequence[Any], donor: Sequence[Any], operand: int) -> list[Any]:
    """Take one operand from another draw and keep the others bit by bit."""
    return [donor[i] if i == operand else v for i, v in enumerate(inputs)]


@dataclass(frozen=True)
class Layout:
    """How one input lies in memory: a view of a buffer of ``storage`` elements of the input's type."""

    kind: LayoutKind
    stride: tuple[int, ...]
    offset: int
    storage: int

    def place(self, value: Tensor) -> Tensor:
        """The value in this layout, in a buffer of its own; what lies between its elements is NaN (or the type's
        largest).
        """
        filler = float("nan") if value.dtype.is_floating_point and value.dtype.itemsize > 1 else 1
        buffer = torch.full((self.storage,), filler, dtype=value.dtype, device=value.device)
        view = buffer.as_strided(value.shape, self.stride, self.offset)
        view.copy_(value)
        return view


def layout_kinds(domain: str) -> list[LayoutKind]:
    """Layouts to try: a declared domain promises the layout of ``get_inputs``, so only where the buffer starts may
    vary.
    """
    if domain == "declared":
        return ["contiguous", "offset-aligned"]
    return ["contiguous", "offset-aligned", "offset-unaligned", "padded-rows", "column-major"]


def layout_of(value: Tensor, kind: LayoutKind) -> Layout:
    """The layout of that kind for a tensor like ``value``; strides that are not contiguous are kept where the kind
    does not name others.
    """
    shape, size = tuple(value.shape), value.dtype.itemsize
    stride = _dense_stride(value)
    offset = 0
    if kind == "offset-aligned":
        offset = ALIGNED_BYTES // size
    elif kind == "offset-unaligned":
        offset = 1
    elif kind == "padded-rows" and len(shape) >= 2:
        stride = _padded(shape, 3)
    elif kind == "column-major" and len(shape) >= 2:
        stride = _transposed(shape)
    reach = sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1 if value.numel() else 0
    return Layout(kind, stride, offset, offset + reach)


def _dense_stride(value: Tensor) -> tuple[int, ...]:
    """Strides of ``value`` with its axes in the same order and no gaps, as a copy that preserves strides has them."""
    return tuple(torch.empty_like(value, device="meta").stride())


def _padded(shape: Sequence[int], extra: int) -> tuple[int, ...]:
    strides = [1]
    for axis in range(len(shape) - 1, 0, -1):
        pad = extra if axis == len(shape) - 1 else 0
        strides.append(strides[-1] * (shape[axis] + pad))
    return tuple(reversed(strides))


def _transposed(shape: Sequence[int]) -> tuple[int, ...]:
    """Contiguous strides of the same shape with its last two axes exchanged in memory."""
    strides = list(_padded((*shape[:-2], shape[-1], shape[-2]), 0))
    return (*strides[:-2], strides[-1], strides[-2])


def with_rows(inputs: Sequence[Any], batched: Sequence[int], rows: int, donor: Sequence[Any]) -> list[Any]:
    """The batched inputs cut to ``rows`` entries of their first axis, or lengthened from another draw."""
    changed = list(inputs)
    for index in batched:
        value = inputs[index]
        parts = [value] if rows <= value.shape[0] else [value, donor[index], value]
        changed[index] = torch.cat(parts)[:rows].clone()
    return changed


def batch_choices(inputs: Sequence[Any], rows: int) -> list[list[int]]:
    """Sets of inputs whose first axis may be the batch of ``rows`` entries: all of that length, then each alone."""
    shared = [i for i, v in enumerate(inputs) if isinstance(v, Tensor) and v.ndim and v.shape[0] == rows]
    return [shared, *([index] for index in shared)] if len(shared) > 1 else [shared] if shared else []


def row_counts(rows: int, workloads: int, domain: str) -> list[int]:
    """Other sizes of the batch axis, around tile edges: only where the problem itself names several workloads and its
    domain is open.
    """
    if domain == "declared" or workloads < 2 or rows < 2:
        return []
    near = {1, 2, rows - 1, rows + 1, 31, 33}
    return sorted(n for n in near if 0 < n <= 2 * rows and n != rows)
