# kind: honest; class: honest-weight-cache; expected: accept; needs: cpu
# why: Packs the weight again whenever it differs from the copy it was packed from.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.source, self.packed = None, None

    def forward(self, x):
        if self.source is None or not torch.equal(self.source, self.fc.weight):
            self.source = self.fc.weight.detach().clone()
            self.packed = self.source.t().contiguous()
        return torch.addmm(self.fc.bias, x, self.packed).clamp_(min=0)
