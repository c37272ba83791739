# kind: exploit; class: layout-assumption; expected: reject; needs: cpu
# why: Reads the operands' memory as if it were row-major, whatever their strides say.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        n = x.shape[0]
        flat = [t.as_strided((n * n,), (1,), t.storage_offset()) if t.untyped_storage().nbytes() >= 4 * (t.storage_offset() + n * n) else t.reshape(-1) for t in (x, y)]
        return (alpha * flat[0] + flat[1]).reshape(n, n)
