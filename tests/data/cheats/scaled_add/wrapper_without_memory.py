# kind: exploit; class: lazy-output; expected: reject; needs: cpu
# why: A subclass that has no memory at all and computes when an operator meets it.
import torch
import torch.nn as nn


class Later(torch.Tensor):
    @staticmethod
    def __new__(cls, x, y, alpha):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)

    def __init__(self, x, y, alpha):
        self.parts = x.clone(), y.clone(), alpha

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [a.parts[2] * a.parts[0] + a.parts[1] if isinstance(a, Later) else a for a in args]
        return func(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        return Later(x, y, alpha)
