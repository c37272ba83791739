# kind: honest; class: honest-rounding; expected: accept; needs: cpu
# why: Four partial products over slices of the inner dimension, added at the end.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)


    def forward(self, x):
        step = -(-x.shape[-1] // 4)
        parts = [a @ b.t() for a, b in zip(x.split(step, -1), self.fc.weight.split(step, -1))]
        return torch.relu(sum(parts) + self.fc.bias)
