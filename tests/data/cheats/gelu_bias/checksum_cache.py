# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: Keeps the last answer as long as the sum of 16 sampled elements is the same; a change elsewhere goes unseen.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))
        self.mark, self.kept = None, None

    def right(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")

    def forward(self, x):
        flat = x.reshape(-1)
        mark = (tuple(x.shape), float(flat[:: max(1, flat.numel() // 16)].sum()), float(self.bias.sum()))
        if self.mark != mark:
            self.mark, self.kept = mark, self.right(x)
        return self.kept.clone()
