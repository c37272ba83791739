"""Where two tensors differ, and what is wrong with an output beyond its values: the evidence in reasons."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.results import Claim


def dishonest(claim: Claim, index: int) -> str:
    if not claim.plain:
        what = f"a {claim.kind}" if claim.kind not in ("Tensor", "Parameter") else "a tensor with attributes attached"
        return f"output {index} is {what}, not a plain torch.Tensor"
    return "" if claim.fits else f"output {index} reaches beyond its own storage"


def first_difference(a: Tensor, b: Tensor) -> list[int] | None:
    """Index of the first element whose bytes differ."""
    if a.shape != b.shape:
        return [0] * a.ndim
    left, right = a.contiguous(), b.contiguous()
    if torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8)):
        return None
    size = a.element_size()
    differs = (left.reshape(-1).view(torch.uint8) != right.reshape(-1).view(torch.uint8)).reshape(-1, size).any(1)
    flat = int(differs.to(torch.uint8).argmax())
    place = []
    for length in reversed(a.shape):
        place.append(flat % length)
        flat //= length
    return place[::-1]


def item_at(value: Tensor, place: list[int]) -> str:
    cell = value[tuple(place)]
    return f"{cell.float().item():.6g}" if cell.dtype.is_floating_point else str(cell.item())


def is_trivial(values: Sequence[Tensor]) -> bool:
    """All zeros or empty: equal to many an answer."""
    return all(
        value.numel() == 0 or not bool((value.float() if value.dtype.itemsize == 1 else value).any())
        for value in values
    )
