"""Copies of what a reference is given and holds: laid out alike, put back, compared bit for bit; and answers held together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.tensors import TensorSpec, bytes_in, place, tensors_in
from tilecast.sandbox.harness.worker.perturbation import is_real, widen

_SLACK_BYTE, _BEHIND_BYTES = 0xFF, 1 << 20
"""What lies between the rows of an input, and as much behind it as a kernel's last tile may reach over: NaN in every
floating type, so that a reference which lets it into its answer does so every time, not when memory happens to hold one.
"""
_ANOTHER = 0.05
"""Relative L2 distance beyond any rounding's (a twentieth; float8's roundoff is a sixteenth at most)."""


def put_back(module: torch.nn.Module, state: dict[str, Tensor]) -> None:
    """Copy values into entries of the module's state by name; each must be there."""
    now = module.state_dict()
    with torch.no_grad():
        for name, value in state.items():
            now[name].copy_(value)


def clone_laid_out(tensor: Tensor, offset: int = 0) -> Tensor:
    """A copy with the same strides, unless they overlap; where they leave gaps, those are filled with a pattern.

    It starts ``offset`` elements into its storage: at an address that is no better aligned than that.
    """
    spec = TensorSpec.of(tensor)
    if spec.overlaps:
        return tensor.clone()
    gaps = spec.extent > spec.elements * spec.dtype.itemsize
    with torch.no_grad():
        if gaps or (offset and spec.elements):
            spec = replace(spec, offset=offset)
            size = spec.extent + (_BEHIND_BYTES if gaps else 0)
            copy = place(torch.full((size,), _SLACK_BYTE, dtype=torch.uint8, device=tensor.device), spec)
        else:
            copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return copy.copy_(tensor)


def same_bytes(a: Tensor, b: Tensor) -> bool:
    """Bit-for-bit equality (NaN equals itself)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(bytes_in(a), bytes_in(b))


def share_memory(draws: list[list[Any]]) -> bool:
    """Whether a tensor of one draw lies in memory of another's."""
    seen: set[int] = set()
    for draw in draws:
        own = {item.untyped_storage().data_ptr() for item in tensors_in(draw) if item.numel()}
        if own & seen:
            return True
        seen |= own
    return False


def aliases_of(outputs: list[Tensor], inputs: list[Tensor]) -> list[list[int]]:
    """Pairs of an output and an input, by number, that share a storage; empty outputs share none."""
    return [
        [o, i]
        for o, out in enumerate(outputs)
        for i, item in enumerate(inputs)
        if out.numel() and out.untyped_storage().data_ptr() == item.untyped_storage().data_ptr()
    ]


def is_another_answer(truth: Sequence[Tensor], native: Sequence[Tensor]) -> bool:
    """Whether a float64 run cannot have computed what the native one did: its random numbers were others, for instance."""
    return any(
        float(torch.linalg.vector_norm(gap)) > _ANOTHER * float(torch.linalg.vector_norm(widen(own)))
        for own, wide in zip(native, truth, strict=True)
        if is_real(own) and bool(torch.isfinite(gap := (widen(own) - wide)).all())
    )
