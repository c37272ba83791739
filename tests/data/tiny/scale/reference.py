"""Twice a vector."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs(n=1024):
    return [torch.randn(n)]


def get_init_inputs():
    return []
