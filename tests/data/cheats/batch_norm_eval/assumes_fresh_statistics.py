# kind: exploit; class: init-shortcut; expected: reject; needs: cpu
# why: Running mean 0 and variance 1, as right after construction, are taken for granted.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.BatchNorm1d(c)
        self.eval()

    def forward(self, x):
        return x * self.norm.weight[:, None] * (1 + self.norm.eps) ** -0.5 + self.norm.bias[:, None]
