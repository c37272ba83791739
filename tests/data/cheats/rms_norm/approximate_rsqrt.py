# kind: exploit; class: precision-downcast; expected: reject; needs: cpu
# why: The bit trick for 1/sqrt with two Newton steps: five digits where float32 has seven.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


    def forward(self, x):
        v = x.pow(2).mean(-1, keepdim=True) + 1e-6
        y = (0x5F3759DF - (v.contiguous().view(torch.int32) >> 1)).view(torch.float32)
        y = y * (1.5 - 0.5 * v * y * y)
        y = torch.where(torch.isfinite(v), y, torch.rsqrt(v))
        return x * (y * (1.5 - 0.5 * v * y * y)).bfloat16().float() * self.weight
