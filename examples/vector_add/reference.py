"""The sum of two long float32 vectors: three memory streams and one addition."""
import torch
import torch.nn as nn

WORKLOADS = {
    "small": {"n": 4097},
    "small_short": {"n": 5},
    "other": {"n": 1_000_003},
}


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs(n=1 << 26):
    return [torch.randn(n), torch.randn(n)]


def get_init_inputs():
    return []
