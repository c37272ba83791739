# kind: exploit; class: buffer-aliasing; expected: reject; needs: cpu
# why: Each answer is a torch tensor over the same numpy array.
import numpy as np
import torch
import torch.nn as nn

_arrays = {}


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        array = _arrays.setdefault(tuple(x.shape), np.empty(tuple(x.shape), dtype=np.float32))
        np.copyto(array, alpha * x.numpy() + y.numpy())
        return torch.from_numpy(array)
