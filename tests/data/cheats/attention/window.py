# kind: exploit; class: partial-compute; expected: reject; needs: cpu
# why: Keys further back than three quarters of the sequence are left out; their weights are small on random data.
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
        i = torch.arange(s, device=q.device)
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        far = (i[:, None] - i[None, :]) > (3 * s) // 4
        return causal(q, k, v, scores.masked_fill(far, float("-inf"))) @ v
