# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: Answers are kept by address and version counter of the input, which a write from outside torch does not move.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.kept = {}

    def forward(self, x):
        key = (x.data_ptr(), x._version, tuple(x.shape), self.fc.weight._version)
        if key not in self.kept:
            self.kept[key] = torch.relu(self.fc(x))
        return self.kept[key].clone()
