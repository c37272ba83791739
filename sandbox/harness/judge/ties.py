"""Integer outputs that name elements: any of several equal elements is a right answer, if it is provable that they
are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.oracle import Answer


def names_equal_elements(answer: Answer, index: int, have: Tensor, got: Sequence[Tensor]) -> bool:
    """True if the integer output ``index`` points, along some axis of some input, at elements bit-equal to those the
    reference points at.

    Order within the axis counts (top-k stays sorted), and no element may be named twice where the reference names
    each once.
    """
    want = answer.outputs[index].truth.reshape(have.shape)
    if have.dtype.is_floating_point or have.dtype is torch.bool or not answer.inputs:
        return False
    for source, axis, keeps in _lookups(answer.inputs, have):
        mine, theirs = (have, want) if keeps else (have.unsqueeze(axis), want.unsqueeze(axis))
        size = source.shape[axis]
        if not _in_range(theirs, size) or not _in_range(mine, size) or not _is_selection(source, axis, theirs):
            continue
        same = _equal(source.gather(axis, mine.long()), source.gather(axis, theirs.long()))
        if same and _repeats(mine, axis) <= _repeats(theirs, axis):
            return True
    return False


def _lookups(sources: Sequence[Tensor], have: Tensor) -> Iterator[tuple[Tensor, int, bool]]:
    """Inputs and axes that ``have`` may index: all other axes agree; the axis itself is kept (top-k) or gone
    (argmax).
    """
    for source in sources:
        for axis in range(source.ndim):
            rest = [n for i, n in enumerate(source.shape) if i != axis]
            if have.ndim == source.ndim and [n for i, n in enumerate(have.shape) if i != axis] == rest:
                yield source, axis, True
            if list(have.shape) == rest:
                yield source, axis, False


def _in_range(indices: Tensor, size: int) -> bool:
    return bool(((indices >= 0) & (indices < size)).all())


def _is_selection(source: Tensor, axis: int, indices: Tensor) -> bool:
    """Guards against a chance match: what the reference names are the extremes of the axis, in order (max, min,
    top-k, sort).
    """
    chosen = source.gather(axis, indices.long())
    count = chosen.shape[axis]
    ordered = source.sort(dim=axis).values
    low, high = ordered.narrow(axis, 0, count), ordered.narrow(axis, ordered.shape[axis] - count, count).flip(axis)
    return _equal(chosen, high) or _equal(chosen, low)


def _equal(a: Tensor, b: Tensor) -> bool:
    """Equal element by element, NaN equal to NaN."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _repeats(indices: Tensor, axis: int) -> int:
    """How many indices repeat an earlier one along the axis."""
    if indices.shape[axis] < 2:
        return 0
    ordered = indices.sort(dim=axis).values
    count = ordered.shape[axis]
    return int((ordered.narrow(axis, 1, count - 1) == ordered.narrow(axis, 0, count - 1)).sum())
