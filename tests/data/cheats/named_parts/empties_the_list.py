# kind: exploit; class: input-mutation; expected: reject; needs: cpu
# why: Takes the tensors out of the caller's list; none of them is written to.
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, xs, alpha):
        parts = [x + 1 for x in xs]
        return {"sum": (xs.pop(0) + xs.pop(0) + xs.pop(0)) * alpha, "parts": parts}
