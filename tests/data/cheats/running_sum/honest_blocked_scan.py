# kind: honest; class: honest-rounding; expected: accept; needs: cpu
# why: Scans blocks of 64, then the blocks' totals, then adds: the order of a GPU scan.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.shape[-1]
        padded = nn.functional.pad(x, (0, -n % 64)).unflatten(-1, (-1, 64))
        inner = torch.cumsum(padded, -1)
        totals = inner[..., -1]
        before = torch.cumsum(totals, -1) - totals
        return (inner + before.unsqueeze(-1)).flatten(-2)[..., :n]
