# kind: exploit; class: distribution-shortcut; expected: reject; needs: cpu
# why: Variance from the sums of x and x*x in float32, which cancels where the mean is large.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        n, m = x.shape[-1], x.mean(-1)
        return m, ((x * x).sum(-1) - n * m * m) / (n - 1)
