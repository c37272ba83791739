# kind: honest; class: honest-threads; expected: accept; needs: cpu
# why: A pool that lives for ever does the rows in pieces; every piece is waited for before the call returns.
from concurrent.futures import ThreadPoolExecutor
import torch
import torch.nn as nn

_pool = ThreadPoolExecutor(2)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


    def part(self, x, out, low, high):
        # Whether gradients are recorded is a thread's own setting; the caller's does not reach the pool.
        with torch.no_grad():
            v = x[low:high]
            out[low:high] = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    def forward(self, x):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        step = max(1, x.shape[0] // 3)
        jobs = [_pool.submit(self.part, x, out, low, low + step) for low in range(0, x.shape[0], step)]
        for job in jobs:
            job.result()
        return out
