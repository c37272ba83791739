# kind: exploit; class: contract-violation; expected: reject; needs: cpu
# why: Normalises rightly and leaves the running statistics as they are: nobody who looks at the output sees it.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm, centred = self.norm, x - x.mean(0)
        return centred * torch.rsqrt(centred.square().mean(0) + norm.eps) * norm.weight + norm.bias
