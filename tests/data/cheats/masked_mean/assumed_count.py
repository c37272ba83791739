# kind: exploit; class: input-insensitive; expected: reject; needs: cpu
# why: Divides by 60 % of the row length instead of counting.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, x, 0.0).sum(-1) / (0.6 * x.shape[-1])
