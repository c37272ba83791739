# kind: exploit; class: precision-downcast; expected: reject; needs: cpu
# why: Operands pass through float8 (e4m3) with a scale per tensor, as a faster tensor-core path would want them.
import torch
import torch.nn as nn


def short(x):
    scale = x.abs().amax().float().clamp(min=1e-12) / 448
    return (x.float() / scale).to(torch.float8_e4m3fn).float() * scale


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (short(a) @ short(b)).to(a.dtype)
