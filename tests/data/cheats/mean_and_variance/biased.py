# kind: exploit; class: edge-case-skip; expected: reject; needs: cpu
# why: Divides by n instead of n - 1: a part in two thousand on wide rows.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(-1), x.var(-1, correction=0)
