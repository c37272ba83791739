"""Task: C = A @ B, bfloat16 operands and result, float32 accumulation."""
import torch
import torch.nn as nn

WORKLOADS = {"small": {"m": 32, "k": 256, "n": 24}, "small_odd": {"m": 5, "k": 65, "n": 9}}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs(m=4096, k=4096, n=4096):
    return [torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()]


def get_init_inputs():
    return []
