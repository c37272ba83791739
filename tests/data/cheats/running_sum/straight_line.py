# kind: exploit; class: partial-compute; expected: reject; needs: cpu
# why: Exact every 64 columns, a straight line in between: right on average.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.shape[-1]
        full = torch.cumsum(x, -1)
        at = torch.arange(n, device=x.device)
        low = (at // 64) * 64
        high = (low + 64).clamp(max=n - 1)
        part = (at - low) / (high - low).clamp(min=1)
        return full[..., low] + (full[..., high] - full[..., low]) * part
