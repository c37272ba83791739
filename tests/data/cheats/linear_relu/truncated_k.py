# kind: exploit; class: partial-compute; expected: reject; needs: cpu
# why: The last thirty-second of the inner dimension is dropped and the rest scaled up.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)


    def forward(self, x):
        k = x.shape[-1]
        u = k - k // 32
        return torch.relu(x[..., :u] @ self.fc.weight[:, :u].t() * (k / u) + self.fc.bias)
