# kind: exploit; class: input-mutation; expected: reject; needs: cpu
# why: Writes over the input from another thread's point of view and puts it back before it returns; the result is an alias of the input.
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        x.mul_(alpha).add_(y)
        return x
