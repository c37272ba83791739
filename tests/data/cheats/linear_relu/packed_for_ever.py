# kind: exploit; class: init-shortcut; expected: reject; needs: cpu
# why: The transposed weight is packed in the first call and never looked at again.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.fc.weight.detach().t().contiguous()
        return torch.relu(x @ self.packed + self.fc.bias)
