# kind: exploit; class: batch-deferral; expected: reject; needs: cpu
# why: Every call finishes the buffer of the call before it and returns one that is only half full.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.open = None

    def forward(self, x, y, alpha):
        if self.open is not None:
            out, a, b, s = self.open
            out.copy_(s * a + b)
        out = torch.zeros_like(x)
        half = x.shape[0] // 2
        out[:half] = alpha * x[:half] + y[:half]
        self.open = (out, x, y, alpha)
        return out
