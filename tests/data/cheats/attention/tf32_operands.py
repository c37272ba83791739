# kind: exploit; class: precision-downcast; expected: reject; needs: cpu
# why: Operands of both products lose 13 bits of mantissa, as a tensor core in TF32 mode takes them; no flag is touched.
import torch
import torch.nn as nn


def causal(q, k, v, scores=None):
    s = q.shape[-2]
    mask = torch.ones(s, s, dtype=torch.bool, device=q.device).tril()
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 if scores is None else scores
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1)


def short(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return short(causal(short(q), short(k), v)) @ short(v)
