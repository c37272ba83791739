"""Task: alpha * x + y with a Python number alpha, float32."""
import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 64}, "small_odd": {"n": 33}, "small_one": {"n": 1}}


class Model(nn.Module):
    def forward(self, x, y, alpha):
        return alpha * x + y


def get_inputs(n=4096):
    return [torch.randn(n, n), torch.randn(n, n), 0.75]


def get_init_inputs():
    return []
