"""The arithmetic of matrix-like operators, counted while they run: of a causal attention only what its mask leaves.

Torch's own counter takes an attention for two whole products, in the forms that it knows, whatever the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

_FUSED = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
"""Operators that an attention is dispatched to, one device or another; (..., sequence, features) each."""


class Arithmetic:
    """A context that counts the floating-point operations of products, convolutions and attention in it."""

    def __init__(self) -> None:
        self._counter = FlopCounterMode(display=False, custom_mapping=_formulas())
        self._attention = _Attention(self._counter)
        self._stack = ExitStack()

    def __enter__(self) -> Arithmetic:
        self._stack.enter_context(self._counter)
        self._stack.enter_context(self._attention)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @property
    def flops(self) -> int:
        """Multiplications and additions so far."""
        return int(self._counter.get_total_flops()) + self._attention.correction


class _Attention(TorchFunctionMode):
    """Counts ``scaled_dot_product_attention`` as what was asked: without values it is taken apart into whole products."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.correction = 0
        self._counter = counter

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = self._counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        if func is torch.nn.functional.scaled_dot_product_attention:
            counted = self._counter.get_total_flops() - before
            self.correction += _flops_as_called(result, *args, **(kwargs or {})) - counted
        return result


def attention_flops(query: Tensor, key: Tensor, out: Tensor, causal: bool) -> int:
    """Of both products; a causal mask leaves query i the keys up to i.

    Args:
        query: (..., rows, depth).
        key: (..., columns, depth).
        out: (..., rows, width); its leading sizes are those that count (queries may share heads of the keys).
    """
    rows, columns = query.shape[-2], key.shape[-2]
    square = min(rows, columns)
    pairs = square * (square + 1) // 2 + (rows - square) * columns if causal else rows * columns
    return int(2 * math.prod(out.shape[:-2]) * pairs * (query.shape[-1] + out.shape[-1]))


def _flops_as_called(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **others: Any,
) -> int:
    return attention_flops(query, key, out, is_causal)


def _formulas() -> dict[Any, Callable[..., int]]:
    """For torch's counter, by operator; a version of torch may lack some of them."""
    packets = [getattr(torch.ops.aten, name) for name in _FUSED if hasattr(torch.ops.aten, name)]
    return {packet: _formula(packet) for packet in packets}


def _formula(packet: Any) -> Callable[..., int]:
    place = [argument.name for argument in packet.default._schema.arguments].index("is_causal")

    def count(query: Tensor, key: Tensor, *args: Any, out_val: Any, **kwargs: Any) -> int:
        given = args[place - 2] if len(args) > place - 2 else False
        return attention_flops(query, key, out_val[0], bool(kwargs.get("is_causal", given)))

    count._get_raw = True  # type: ignore[attr-defined]  # tensors are wanted, not their shapes
    return count
