# kind: exploit; class: contract-violation; expected: reject; needs: cpu
# why: The running variance takes in the biased variance of the batch: off by a part in sixteen of a tenth.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm, mean = self.norm, x.mean(0)
        variance = (x - mean).square().mean(0)
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance, norm.momentum)
        return (x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias
