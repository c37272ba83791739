"""Arithmetic of a reference: counted by operator, and of a causal attention only what its mask leaves."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tilecast.sandbox.harness.worker.arithmetic import Arithmetic
from tilecast.sandbox.harness.worker.describing import describe

attend = nn.functional.scaled_dot_product_attention
B, H, S, D = 2, 4, 64, 32
WHOLE = 2 * B * H * S * S * 2 * D
CAUSAL = WHOLE * (S + 1) // (2 * S)


def counted(device: str, dtype: torch.dtype, **options: Any) -> int:
    """Operations of one attention; ``device`` may be ``fake``."""
    with FakeTensorMode() if device == "fake" else torch.device(device):
        q, k, v = (torch.randn(B, H, S, D, dtype=dtype, device="cpu" if device == "fake" else device) for _ in range(3))
        with torch.no_grad(), Arithmetic() as arithmetic:
            attend(q, k, v, **options)
    return arithmetic.flops


@pytest.mark.parametrize("device", ["cpu", "meta", "fake"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_causal_attention_is_about_half(device: str, dtype: torch.dtype) -> None:
    assert counted(device, dtype, is_causal=True) == CAUSAL
    assert counted(device, dtype) == WHOLE
    assert 0.5 < CAUSAL / WHOLE < 0.51


def test_the_fused_operator_called_directly() -> None:
    q = torch.randn(B, H, S, D)
    for causal, expected in ((True, CAUSAL), (False, WHOLE)):
        with torch.no_grad(), Arithmetic() as arithmetic:
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, 0.0, causal)
        assert arithmetic.flops == expected


@pytest.mark.parametrize(("rows", "columns", "pairs"), [(3, 5, 1 + 2 + 3), (5, 3, 1 + 2 + 3 + 3 + 3)])
def test_other_numbers_of_keys_than_of_queries(rows: int, columns: int, pairs: int) -> None:
    q, k = torch.randn(1, 4, rows, 8), torch.randn(1, 2, columns, 8)
    with torch.no_grad(), Arithmetic() as arithmetic:
        attend(q, k, k, None, 0.0, True, enable_gqa=True)
    assert arithmetic.flops == 2 * 4 * pairs * 16


def test_products_around_it_count_as_ever() -> None:
    x, w = torch.randn(B, H, S, D), torch.randn(D, D)
    with torch.no_grad(), Arithmetic() as arithmetic:
        y = x @ w
        attend(y, x, x, is_causal=True)
    assert arithmetic.flops == CAUSAL + 2 * B * H * S * D * D


def test_of_a_reference_without_values() -> None:
    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return attend(q, k, v, is_causal=True)

    source = ModuleType("reference")
    inputs = lambda s=S: [torch.randn(B, H, s, D, dtype=torch.bfloat16) for _ in range(3)]  # noqa: E731
    source.__dict__.update(Model=Model, get_inputs=inputs, get_init_inputs=list)
    assert describe(source, {}, dry=True)["flops"] == describe(source, {}, dry=False)["flops"] == CAUSAL
