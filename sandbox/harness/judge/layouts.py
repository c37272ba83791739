"""How values lie in memory: as their models do, or in one of the layouts that a problem is asked in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge import changes
from tilecast.sandbox.harness.tensors import TensorSpec, tensors_in

Layouts = list[TensorSpec | None]


class LayoutBroke(Exception):
    """What the reference did with inputs in a layout left its worker unable to compute at all."""

    def __init__(self, kind: changes.LayoutKind) -> None:
        super().__init__(f"the reference's worker is of no use after inputs in the {kind} layout")
        self.kind = kind


def laid_out_like(values: Sequence[Any], models: Sequence[Any]) -> list[Any]:
    """The values with their axes in the models' order in memory: which is part of what ``get_inputs`` promises."""
    return [ordered_like(value, model) for value, model in zip(values, models, strict=True)]


def ordered_like(value: Any, model: Any) -> Any:
    """A value with its axes in the model's order in memory; what is no tensor, or of other dimensions, as it is."""
    if not isinstance(value, Tensor) or not isinstance(model, Tensor) or value.ndim != model.ndim:
        return value
    if model.is_contiguous() and value.is_contiguous():
        return value
    steps = model.stride()
    order = sorted(range(model.ndim), key=lambda axis: (-steps[axis], axis))
    dense = torch.empty([value.shape[axis] for axis in order], dtype=value.dtype, device=value.device)
    back = [order.index(axis) for axis in range(value.ndim)]
    return dense.permute(back).copy_(value) if value.ndim else value


def layouts_of(inputs: Sequence[Any], kind: changes.LayoutKind) -> Layouts:
    """Specs of one kind of layout for every tensor of some inputs; None where it stays as it is."""
    if kind == "contiguous":
        return []
    specs: Layouts = []
    for value in tensors_in(list(inputs)):
        layout = changes.layout_of(value, kind)
        specs.append(
            TensorSpec(tuple(value.shape), value.dtype, layout.stride, layout.offset) if value.numel() else None
        )
    return specs
