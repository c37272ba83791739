"""Where two tensors differ, and what is wrong with an output beyond its values: the evidence in reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.bounds import as_rows
from tilecast.sandbox.harness.judge.oracle import Answer
from tilecast.sandbox.harness.judge.results import Claim
from tilecast.sandbox.harness.tensors import bytes_in

_CHUNK_ELEMENTS = 1 << 22
_SURE = 3.0
"""Standard deviations of chance by which an output must be nearer to an earlier answer than to its own."""


def dishonest(claim: Claim, index: int) -> str:
    if not claim.plain:
        what = f"a {claim.kind}" if claim.kind not in ("Tensor", "Parameter") else "a tensor with attributes attached"
        return f"output {index} is {what}, not a plain torch.Tensor"
    return "" if claim.fits else f"output {index} reaches beyond its own storage"


def first_difference(a: Tensor, b: Tensor) -> list[int] | None:
    """Index of the first element whose bytes differ."""
    if a.shape != b.shape:
        return [0] * a.ndim
    left, right = bytes_in(a), bytes_in(b)
    if torch.equal(left, right):
        return None
    differs = (left != right).reshape(-1, a.element_size()).any(1)
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


def is_earlier(old: Answer, new: Answer, values: Sequence[Tensor]) -> bool:
    """Whether ``values`` are the ``old`` answer rather than the ``new`` one, which they should be.

    Two calls may have nearly the same answer (a few elements of the inputs were changed): only where the two differ can it be
    seen which of them an output is, and only by more than its own errors.
    """
    triples = zip(old.outputs, new.outputs, values, strict=True)
    return any(
        _nearer(_rows(a.truth), _rows(b.truth), as_rows(value) if b.allowed is not None else _rows(value.reshape(-1)))
        for a, b, value in triples
        if a.truth.shape == b.truth.shape and value.numel()
    )


def _rows(truth: Tensor) -> Tensor:
    return truth.unsqueeze(1) if truth.ndim == 1 else truth


def _nearer(old: Tensor, new: Tensor, value: Tensor) -> bool:
    """Whether ``value`` is surely beyond the middle of the way from ``new`` to ``old``; all (R, C), taken in parts.

    Its place on the way is uncertain by its errors, of which those to the nearer of the two are seen.
    """
    along = length = chance = 0.0
    step = max(1, _CHUNK_ELEMENTS // max(1, new.shape[1]))
    for start in range(0, new.shape[0], step):
        a, b, v = (part[start : start + step].double() for part in (old, new, value))
        v = v.where(torch.isfinite(v), b)
        way = a - b
        along += float(((v - b) * way).sum())
        length += float(way.square().sum())
        chance += float((torch.minimum((v - a).abs(), (v - b).abs()) * way).square().sum())
    return along > 0.5 * length + _SURE * math.sqrt(chance)
