# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: The variance handed out is that of the previous call.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = {}

    def forward(self, x):
        now = x.var(-1)
        old = self.last.get(tuple(x.shape), now)
        self.last[tuple(x.shape)] = now
        return x.mean(-1), old.clone()
