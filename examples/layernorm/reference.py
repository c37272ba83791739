"""LayerNorm over rows of 5120 bfloat16 values with weight and bias; statistics in float32."""
import torch
import torch.nn as nn

WORKLOADS = {
    "small": {"m": 5, "n": 781},
    "small_short": {"m": 2, "n": 40},
    "other": {"m": 2001, "n": 3072},
}


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, dtype=torch.bfloat16)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x):
        return self.norm(x)


def get_inputs(m=16384, n=5120):
    return [torch.randn(m, n, dtype=torch.bfloat16) * 2 + 0.5]


def get_init_inputs(m=16384, n=5120):
    return [n]
