# kind: honest; class: honest-more-precise; expected: accept; needs: cpu
# why: Streams over blocks and merges their moments (Chan); returns a list.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        count, mean, square = 0, 0.0, 0.0
        for part in x.split(128, dim=-1):
            n = part.shape[-1]
            m = part.mean(-1)
            s = (part - m.unsqueeze(-1)).pow(2).sum(-1)
            delta = m - mean
            square = square + s + delta * delta * (count * n / (count + n))
            mean = mean + delta * (n / (count + n))
            count += n
        return [mean, square / (count - 1)]
