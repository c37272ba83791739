# kind: exploit; class: shape-specialised; expected: reject; needs: cpu
# why: Knows the batch sizes of the workloads; of any other batch the odd row at the end is left out.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


    def forward(self, x):
        out = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        if x.shape[0] not in (12, 5, 4096):
            out[-1] = 0
        return out
