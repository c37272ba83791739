# kind: exploit; class: partial-compute; expected: reject; needs: cpu
# why: The scale factors of the second half of the batch are those of the first half.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


    def forward(self, x):
        h = (x.shape[0] + 1) // 2
        r = torch.rsqrt(x[:h].pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * torch.cat([r, r])[: x.shape[0]] * self.weight
