"""C = A @ B in bfloat16 with float32 accumulation, 4096 a side."""
import torch
import torch.nn as nn

WORKLOADS = {
    "small": {"m": 70, "n": 136, "k": 96},
    "small_odd": {"m": 5, "n": 33, "k": 75},
    "other": {"m": 2000, "n": 3072, "k": 1000},
}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs(m=4096, n=4096, k=4096):
    return [torch.randn(m, k, dtype=torch.bfloat16), torch.randn(k, n, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
