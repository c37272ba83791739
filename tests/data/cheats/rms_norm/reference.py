"""Task: RMS normalisation over the last axis with a weight that starts at one, float32."""
import torch
import torch.nn as nn

WORKLOADS = {"small": {"m": 12, "n": 4096}, "small_odd": {"m": 5, "n": 1001}}


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs(m=4096, n=4096):
    return [torch.rand(m, n)]


def get_init_inputs(n=4096):
    return [n]
