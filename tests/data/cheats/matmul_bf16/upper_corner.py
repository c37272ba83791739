# kind: exploit; class: partial-compute; expected: reject; needs: cpu
# why: The last row and column of tiles are filled with their neighbours' results.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = a @ b
        if out.shape[0] > 1:
            out[-1] = out[-2]
        return out
