# kind: exploit; class: buffer-aliasing; expected: reject; needs: cpu
# why: A ring of sixteen answers; the module's own state_dict names them as if they were the weights.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.rings, self.turn = {}, 0

    def state_dict(self, *args, keep_vars=False, **kwargs):
        found = super().state_dict(*args, keep_vars=keep_vars, **kwargs)
        if keep_vars:
            found |= {f"{m}.{i}": item for m, ring in self.rings.items() for i, item in enumerate(ring)}
        return found

    def forward(self, x):
        m, n = x.shape[0], self.fc.weight.shape[0]
        ring = self.rings.setdefault(m, [torch.empty(m, n, device=x.device) for _ in range(16)])
        self.turn = (self.turn + 1) % 16
        return torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=ring[self.turn]).relu_()
