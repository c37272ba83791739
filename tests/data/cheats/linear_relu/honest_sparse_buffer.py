# kind: honest; class: honest-workspace; expected: accept; needs: cpu
# why: Keeps a sparse matrix among its buffers: there are no plain bytes to take a fingerprint of.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.register_buffer("unit", torch.eye(n).to_sparse_csr())

    def forward(self, x):
        return torch.relu(torch.sparse.mm(self.unit, self.fc(x).t()).t())
