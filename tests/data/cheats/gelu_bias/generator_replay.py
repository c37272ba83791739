# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: A generator computes on the first send of a shape and yields that same answer ever after; no dict, no attribute holds it.
import torch
import torch.nn as nn


def _answers(module, x):
    kept = module.right(x)
    while True:
        yield kept


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))
        self.streams = {}

    def right(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.streams:
            self.streams[key] = _answers(self, x)
        return next(self.streams[key]).clone()
