# kind: exploit; class: input-mutation; expected: reject; needs: cpu
# why: Uses the caller's second operand as the output buffer and hands back a copy.
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        return y.add_(x, alpha=alpha).clone()
