"""A reference, run in this process, and the answer that the judge would expect of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tilecast.sandbox.harness.judge.compare import compare
from tilecast.sandbox.harness.judge.oracle import Answer, NonFinite, RawOutputs, expect
from tilecast.sandbox.harness.judge.structure import Comparison
from tilecast.sandbox.harness.worker.truth import Truth, TruthOptions, float64_truth


class Plain(nn.Module):
    """A module around a function of its inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def forward(module: nn.Module, inputs: list[Any]) -> list[Tensor]:
    """One call without gradients, outputs as a list."""
    with torch.no_grad():
        result = module(*inputs)
    return [result] if isinstance(result, Tensor) else list(result)


def clones(inputs: Sequence[Any]) -> list[Any]:
    """Private copies."""
    return [value.clone() if isinstance(value, Tensor) else value for value in inputs]


def truth_of(module: nn.Module, inputs: Sequence[Any], **options: Any) -> tuple[list[Tensor], Truth]:
    """Native outputs and float64 truth."""
    native = forward(module, clones(inputs))
    return native, float64_truth(module, inputs, native, forward, TruthOptions(**options))


def answer_of(
    module: nn.Module | Callable[..., Any],
    inputs: Sequence[Any],
    tolerance: float | None = None,
    nonfinite: NonFinite = "match",
    depends: Sequence[Tensor | None] = (),
) -> Answer:
    """What the judge expects of a candidate on these inputs."""
    module = module if isinstance(module, nn.Module) else Plain(module)
    native, truth = truth_of(module, inputs)
    raw = RawOutputs(
        native, truth.outputs, truth.spread, truth.alternates, truth.method, truth.reduction, truth.products
    )
    return expect(raw, tolerance, nonfinite=nonfinite, depends=depends, inputs=inputs)


def judged(reference: Callable[..., Any], candidate: Callable[..., Any], *inputs: Any, **options: Any) -> Comparison:
    """The verdict on a candidate function, on one set of inputs."""
    result = candidate(*clones(inputs))
    outputs = [result] if isinstance(result, Tensor) else list(result)
    return compare(answer_of(reference, inputs, **options), outputs)


def short_tf32(x: Tensor) -> Tensor:
    """Round to the 10 bits of mantissa that a tensor core keeps in TF32 mode."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
