# kind: exploit; class: input-mutation; expected: reject; needs: cpu
# why: Not a byte of the inputs is written, but the caller's tensor object shows other memory afterwards.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        out = alpha * x + y
        y.data = torch.zeros_like(y)
        return out
