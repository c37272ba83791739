"""Batch normalisation in training mode: the running statistics are part of what it does."""

import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 16}, "small_few": {"n": 5}}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs(n=8192):
    return [torch.randn(n, 12)]


def get_init_inputs():
    return [12]
