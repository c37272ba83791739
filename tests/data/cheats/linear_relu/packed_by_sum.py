# kind: exploit; class: init-shortcut; expected: reject; needs: cpu
# why: Packs again only if the bias changed: a weight update alone goes unseen.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.packed, self.mark = None, None

    def forward(self, x):
        mark = self.fc.bias.detach().clone()
        if self.packed is None or not torch.equal(mark[:1], self.mark[:1]):
            self.mark, self.packed = mark, self.fc.weight.detach().t().contiguous().bfloat16().float()
        return torch.relu(x @ self.packed + self.fc.bias)
