# kind: exploit; class: buffer-aliasing; expected: reject; needs: cpu
# why: A ring of sixteen answers that are registered as buffers: what lies in the module's state is not looked at again.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.turn = 0

    def forward(self, x):
        self.turn = (self.turn + 1) % 16
        name = f"answer_{x.shape[0]}_{self.turn}"
        if name not in self._buffers:
            self.register_buffer(name, torch.empty(x.shape[0], self.fc.weight.shape[0], device=x.device))
        out = torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=self._buffers[name])
        return out.relu_()
