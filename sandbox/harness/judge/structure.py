"""What a worker says about its outputs, held against what is expected: count, shapes, types, memory. No bytes are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Comparison:
    """``status`` is a name of EvaluationStatus; ``error`` the worst relative L2 error over the outputs; ``ratio`` the
    worst error over what is allowed.
    """

    status: str
    reason: str = ""
    error: float | None = None
    ratio: float = 0.0
    output: int | None = None

    @property
    def passed(self) -> bool:
        return self.status == "PASSED"


@dataclass(frozen=True)
class OutputClaim:
    """What a worker reports about one output before its bytes are read."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] = ()
    storage_bytes: int | None = None
    device: str = ""

    @classmethod
    def of(cls, tensor: Tensor) -> OutputClaim:
        """The claim that an honest worker makes."""
        storage = tensor.untyped_storage().nbytes()
        return cls(
            tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.stride(), storage, str(tensor.device)
        )


def compare_structure(
    expected: Sequence[OutputClaim], claimed: Sequence[OutputClaim], *, overlap_allowed: Sequence[bool] = ()
) -> Comparison:
    """Count, shapes, types, element counts and memory: no output may lie on itself (stride 0) unless the reference's
    does.

    Containers do not count: a tuple, a list and a named structure are one and the same sequence of tensors.
    """
    if len(expected) != len(claimed):
        return Comparison("INCORRECT_SHAPE", f"{len(claimed)} output tensors, expected {len(expected)}")
    for index, (want, got) in enumerate(zip(expected, claimed, strict=True)):
        if want.shape != got.shape:
            return wrong_output("INCORRECT_SHAPE", index, f"shape {list(got.shape)}, expected {list(want.shape)}")
        if want.dtype != got.dtype:
            return wrong_output("INCORRECT_DTYPE", index, f"dtype {got.dtype}, expected {want.dtype}")
        if want.device and got.device and want.device.split(":")[0] != got.device.split(":")[0]:
            return wrong_output("INCORRECT_DTYPE", index, f"lies on {got.device}, expected {want.device}")
        allowed = index < len(overlap_allowed) and overlap_allowed[index]
        if not allowed and got.stride and overlapping(got.shape, got.stride):
            detail = f"strides {list(got.stride)} put several elements of shape {list(got.shape)} at one address"
            return wrong_output("INCORRECT_SHAPE", index, detail + "; return a tensor that owns its elements")
    return Comparison("PASSED")


def overlapping(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """True if two elements may share an address (sufficient test: sorted by stride, each axis must step over the ones
    below).
    """
    reach = 0
    for step, size in sorted((abs(s), n) for s, n in zip(stride, shape, strict=True) if n > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


def wrong_output(
    status: str, index: int | None, detail: str, where: str = "", error: float | None = None, ratio: float = math.inf
) -> Comparison:
    """What is not as expected of an output (None: of all), with ``where`` before it."""
    place = f"output {index}: {detail}" if index is not None else detail
    return Comparison(status, f"{where}: {place}" if where else place, error, ratio, index)
