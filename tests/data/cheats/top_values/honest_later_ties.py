# kind: honest; class: honest-ties; expected: accept; needs: cpu
# why: Sorts a flipped copy: the same values, but of equal ones the later positions.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        v, i = x.flip(-1).sort(dim=-1, descending=True, stable=True)
        return [v[..., :8].contiguous(), x.shape[-1] - 1 - i[..., :8]]
