"""C = A + B for bfloat16 matrices, B given as the transpose of a row-major one: its columns are contiguous, not its rows."""
import torch
import torch.nn as nn

WORKLOADS = {
    "small": {"m": 70, "n": 131},
    "small_thin": {"m": 3, "n": 300},
    "other": {"m": 3000, "n": 5001},
}


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs(m=8192, n=8192):
    return [torch.randn(m, n, dtype=torch.bfloat16), torch.randn(n, m, dtype=torch.bfloat16).t()]


def get_init_inputs():
    return []
