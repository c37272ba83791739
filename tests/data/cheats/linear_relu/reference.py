"""Task: relu(x @ W.T + b), float32, with parameters that may be updated between calls."""
import torch
import torch.nn as nn

WORKLOADS = {"small": {"m": 24, "k": 256, "n": 40}, "small_odd": {"m": 5, "k": 33, "n": 7}}


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs(m=2048, k=2048):
    return [torch.rand(m, k)]


def get_init_inputs(k=2048, n=2048):
    return [k, n]
