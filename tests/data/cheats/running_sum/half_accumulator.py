# kind: exploit; class: precision-downcast; expected: reject; needs: cpu
# why: The running total lives in bfloat16.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x.bfloat16(), -1).float()
