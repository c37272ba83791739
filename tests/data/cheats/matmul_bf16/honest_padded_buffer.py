# kind: honest; class: honest-noncontiguous; expected: accept; needs: cpu
# why: Computes into a padded float32 buffer in slices of K and returns a view of a wider bfloat16 buffer.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, n = a.shape[0], b.shape[1]
        acc = torch.zeros(m, n, dtype=torch.float32, device=a.device)
        for k in range(0, a.shape[1], 16):
            acc += a[:, k : k + 16].float() @ b[k : k + 16].float()
        wide = torch.empty(m, n + 8, dtype=a.dtype, device=a.device)
        wide[:, :n] = acc
        return wide[:, :n]
