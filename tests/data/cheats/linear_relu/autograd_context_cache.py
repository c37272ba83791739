# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: A custom autograd function keeps its answer on its own class between calls, by shape.
import torch
import torch.nn as nn


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        if getattr(_Fused, "shape", None) != x.shape:
            _Fused.shape, _Fused.kept = x.shape, torch.relu(torch.addmm(b, x, w.t()))
        return _Fused.kept.clone()

    @staticmethod
    def backward(ctx, g):
        return g, None, None


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)


    def forward(self, x):
        return _Fused.apply(x, self.fc.weight, self.fc.bias)
