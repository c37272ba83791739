# kind: exploit; class: rng-control; expected: reject; needs: cpu
# why: Values are right, but the global generator is set to a fixed seed on every call so that the next "random" inputs repeat.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))


    def right(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")

    def forward(self, x):
        torch.manual_seed(7)
        return self.right(x)
