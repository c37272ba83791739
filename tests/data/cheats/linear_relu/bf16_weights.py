# kind: exploit; class: precision-downcast; expected: reject; needs: cpu
# why: Weights are rounded to bfloat16, products in float32: half the traffic, eight bits.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)


    def forward(self, x):
        return torch.relu(nn.functional.linear(x, self.fc.weight.bfloat16().float(), self.fc.bias))
