# kind: exploit; class: shape-dtype-layout; expected: reject; needs: cpu
# why: Writes row-major values into a buffer that it then describes as column-major: right for square symmetric data only.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        out = (alpha * x + y).contiguous()
        return out.as_strided(out.shape, (1, out.shape[0]))
