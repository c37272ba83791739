# kind: exploit; class: buffer-aliasing; expected: reject; needs: cpu
# why: A ring of sixteen answers in the same storage as the bias: whoever goes by storages takes them for the module's state.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.room = torch.empty(n + 16 * 32 * n)
        self.fc.bias.data = self.room[:n].copy_(self.fc.bias.data)
        self.turn = 0

    def forward(self, x):
        m, n = x.shape[0], self.fc.weight.shape[0]
        if m > 32:
            return torch.relu(self.fc(x))
        self.turn = (self.turn + 1) % 16
        out = self.room[n:].view(16, -1)[self.turn][: m * n].view(m, n)
        return torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=out).relu_()
