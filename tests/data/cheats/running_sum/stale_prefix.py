# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: Assumes that the first half of each row is what it was in the last call.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.prefix = {}

    def forward(self, x):
        h = x.shape[-1] // 2
        head = self.prefix.setdefault(tuple(x.shape), torch.cumsum(x[..., :h], -1))
        tail = torch.cumsum(x[..., h:], -1) + (head[..., -1:] if h else 0)
        return torch.cat([head, tail], -1)
