# kind: exploit; class: init-shortcut; expected: reject; needs: cpu
# why: Leaves out the bias, which is zero after construction.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))


    def right(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")

    def forward(self, x):
        return nn.functional.gelu(x, approximate="tanh")
