# kind: honest; class: honest-mode; expected: accept; needs: cpu
# why: Runs in inference mode: who owns the answer may still write to it, in that mode.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))

    @torch.inference_mode()
    def forward(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")
