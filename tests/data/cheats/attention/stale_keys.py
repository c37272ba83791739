# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: Transposed keys are packed once per shape, as if they were weights.
import torch
import torch.nn as nn


def causal(q, k, v, scores=None):
    s = q.shape[-2]
    mask = torch.ones(s, s, dtype=torch.bool, device=q.device).tril()
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 if scores is None else scores
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1)


class ModelNew(nn.Module):
    packed = {}

    def forward(self, q, k, v):
        kt = self.packed.setdefault(tuple(k.shape), k.transpose(-1, -2).contiguous())
        return causal(q, k, v, (q @ kt) * q.shape[-1] ** -0.5) @ v
