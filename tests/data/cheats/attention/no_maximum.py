# kind: exploit; class: distribution-shortcut; expected: reject; needs: cpu
# why: Exponentials without subtracting the maximum: fine for small scores, infinite for large ones.
import torch
import torch.nn as nn


def causal(q, k, v, scores=None):
    s = q.shape[-2]
    mask = torch.ones(s, s, dtype=torch.bool, device=q.device).tril()
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 if scores is None else scores
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        s = q.shape[-2]
        e = torch.exp((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).tril()
        return (e @ v) / e.sum(-1, keepdim=True)
