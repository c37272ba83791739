"""Causal attention, forward, bfloat16: (batch, heads, sequence, head size)."""
import torch
import torch.nn as nn

WORKLOADS = {
    "small": {"b": 1, "h": 2, "s": 131, "d": 32},
    "small_short": {"b": 2, "h": 1, "s": 5, "d": 64},
    "other": {"b": 2, "h": 8, "s": 1025, "d": 64},
}


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs(b=2, h=16, s=4096, d=128):
    return [torch.randn(b, h, s, d, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
