# kind: exploit; class: precision-downcast; expected: reject; needs: cpu
# why: Probabilities and values are rounded to bfloat16 before the second product, though the task is float32.
import torch
import torch.nn as nn


def causal(q, k, v, scores=None):
    s = q.shape[-2]
    mask = torch.ones(s, s, dtype=torch.bool, device=q.device).tril()
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 if scores is None else scores
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return causal(q, k, v).bfloat16().float() @ v.bfloat16().float()
