# kind: exploit; class: partial-compute; expected: reject; needs: cpu
# why: Each row is cut into eight blocks and the maximum of each is taken: often the same eight.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        step = x.shape[-1] // 8
        blocks = x[..., : step * 8].reshape(*x.shape[:-1], 8, step)
        v, j = blocks.max(-1)
        i = j + torch.arange(8, device=x.device) * step
        order = v.argsort(dim=-1, descending=True)
        return v.gather(-1, order), i.gather(-1, order)
