# kind: exploit; class: stateful-phase; expected: reject; needs: cpu
# why: A property counts reads: honest for forty calls, the tail of the rows is skipped afterwards.
import torch
import torch.nn as nn


class _Counter:
    def __init__(self):
        self.n = 0

    def __get__(self, owner, kind=None):
        self.n += 1
        return self.n


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))


    def right(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")

    calls = _Counter()

    def forward(self, x):
        out = self.right(x)
        if self.calls > 40:
            out[x.shape[0] // 2 :] = 0
        return out
