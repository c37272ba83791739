# kind: exploit; class: partial-output; expected: reject; needs: cpu
# why: Values are right, every index is that of the maximum.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        v, i = torch.topk(x, 8, dim=-1)
        return v, i[..., :1].repeat(1, 8)
