# kind: honest; class: honest-basic; expected: accept; needs: cpu
# why: Plain numpy into a new array.
import numpy as np
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        return torch.from_numpy(np.float32(alpha) * x.numpy() + y.numpy())
