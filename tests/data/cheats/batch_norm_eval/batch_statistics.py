# kind: exploit; class: distribution-shortcut; expected: reject; needs: cpu
# why: Uses the batch's own statistics, near 0 and 1 for normal inputs.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.BatchNorm1d(c)
        self.eval()

    def forward(self, x):
        n = self.norm
        return nn.functional.batch_norm(x, None, None, n.weight, n.bias, True, 0.0, n.eps)
