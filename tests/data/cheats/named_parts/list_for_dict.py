# kind: exploit; class: shape-dtype-layout; expected: reject; needs: cpu
# why: The right tensors in a list: whoever asks for output["sum"] gets an error.
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, xs, alpha):
        return [[x + 1 for x in xs], sum(xs) * alpha]
