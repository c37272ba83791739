# kind: honest; class: honest-rounding; expected: accept; needs: cpu
# why: The squares are added up column by column in float32, the least accurate order there is.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


    def forward(self, x):
        total = torch.zeros(x.shape[:-1], dtype=x.dtype, device=x.device)
        for piece in x.split(8, dim=-1):
            for column in piece.unbind(-1):
                total = total + column * column
        return x * torch.rsqrt(total.unsqueeze(-1) / x.shape[-1] + 1e-6) * self.weight
