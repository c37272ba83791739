"""LayerNorm in cuTile: one block a few rows, each row a single tile that is as wide as the next power of two."""
import cuda.tile as ct
import torch
import torch.nn as nn

CONFIG = {"ROWS": 1, "occupancy": 1, "warps": 4, "tma": 1}
SPACE = {"ROWS": [1], "occupancy": [1, 2, 4], "warps": [4, 8], "tma": [0, 1]}
hinted = {}
"""Kernels by their hints: compiled code, nothing of a call."""


@ct.kernel
def layernorm_rows(
    x, weight, bias, y, n, eps, ROWS: ct.Constant[int], TILE: ct.Constant[int], TMA: ct.Constant[bool]
):
    i = ct.bid(0)
    zero = ct.PaddingMode.ZERO
    inside = ct.reshape(ct.arange(TILE, dtype=ct.int32) < n, (1, TILE))
    t = ct.astype(ct.load(x, index=(i, 0), shape=(ROWS, TILE), padding_mode=zero, allow_tma=TMA), ct.float32)
    mean = ct.sum(t, axis=1, keepdims=True) / n
    apart = ct.where(inside, t - mean, 0.0)
    scale = ct.rsqrt(ct.sum(apart * apart, axis=1, keepdims=True) / n + eps)
    w = ct.astype(ct.load(weight, index=(0,), shape=(TILE,), padding_mode=zero, allow_tma=TMA), ct.float32)
    b = ct.astype(ct.load(bias, index=(0,), shape=(TILE,), padding_mode=zero, allow_tma=TMA), ct.float32)
    out = apart * scale * ct.reshape(w, (1, TILE)) + ct.reshape(b, (1, TILE))
    ct.store(y, index=(i, 0), tile=ct.astype(out, y.dtype), allow_tma=TMA)


def kernel():
    key = (CONFIG["occupancy"], CONFIG["warps"])
    if key not in hinted:
        hinted[key] = layernorm_rows.replace_hints(occupancy=key[0], num_worker_warps=key[1])
    return hinted[key]


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, dtype=torch.bfloat16)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
        m, n = rows.shape
        if m and n:
            weight, bias = self.norm.weight.detach(), self.norm.bias.detach()
            tile = 1 << (n - 1).bit_length()
            arguments = (rows, weight, bias, y, n, self.norm.eps, CONFIG["ROWS"], tile, bool(CONFIG["tma"]))
            ct.launch(torch.cuda.current_stream(), (ct.cdiv(m, CONFIG["ROWS"]), 1, 1), kernel(), arguments)
        return y.reshape(x.shape)
