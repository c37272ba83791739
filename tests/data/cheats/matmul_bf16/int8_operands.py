# kind: exploit; class: precision-downcast; expected: reject; needs: cpu
# why: Operands are quantised to eight bits with one scale each, products exact.
import torch
import torch.nn as nn


def short(x):
    scale = x.float().abs().amax().clamp(min=1e-12) / 127
    return (x.float() / scale).round() * scale


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (short(a) @ short(b)).to(a.dtype)
