"""The first half of a transformer's MLP in bfloat16: gelu(x @ W^T + b), with the tanh form of GELU."""
import torch
import torch.nn as nn

WORKLOADS = {
    "small": {"m": 70, "k": 96, "n": 136},
    "small_odd": {"m": 5, "k": 75, "n": 33},
    "other": {"m": 2000, "k": 1000, "n": 4096},
}


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k, dtype=torch.bfloat16) * k**-0.5)
        self.bias = nn.Parameter(torch.randn(n, dtype=torch.bfloat16))

    def forward(self, x):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, self.weight, self.bias), approximate="tanh")


def get_inputs(m=4096, k=2048, n=8192):
    return [torch.randn(m, k, dtype=torch.bfloat16)]


def get_init_inputs(m=4096, k=2048, n=8192):
    return [k, n]
