# kind: exploit; class: buffer-aliasing; expected: reject; needs: cpu
# why: Answers come from a ring of three buffers: the fourth call overwrites the first.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.rings, self.turn = {}, 0

    def forward(self, x, y, alpha):
        ring = self.rings.setdefault(tuple(x.shape), [torch.empty_like(x) for _ in range(3)])
        self.turn += 1
        return torch.add(y, x, alpha=alpha, out=ring[self.turn % 3])
