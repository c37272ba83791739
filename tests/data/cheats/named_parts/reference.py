"""A list of tensors and a number in, a dict out."""

import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 130}, "small_odd": {"n": 3}}


class Model(nn.Module):
    def forward(self, xs, alpha):
        return {"sum": sum(xs) * alpha, "parts": [x + 1 for x in xs]}


def get_inputs(n=1 << 20):
    return [[torch.randn(n), torch.randn(n), torch.randn(n)], 0.5]


def get_init_inputs():
    return []
