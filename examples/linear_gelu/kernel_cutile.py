"""The fused linear layer in cuTile: the plain product of `matmul`, with bias and GELU on the tile before it is stored."""
import cuda.tile as ct
import torch
import torch.nn as nn

CONFIG = {"TILE_M": 64, "TILE_N": 128, "TILE_K": 32, "warps": 4}
SPACE = {"TILE_M": [64, 128], "TILE_N": [128, 256], "TILE_K": [32, 64], "warps": [4, 8]}
hinted = {}
"""Kernels by their hints: compiled code, nothing of a call."""


@ct.kernel
def linear_gelu_tiles(x, w_t, bias, y, TILE_M: ct.Constant[int], TILE_N: ct.Constant[int], TILE_K: ct.Constant[int]):
    i, j = ct.bid(1), ct.bid(0)
    zero = ct.PaddingMode.ZERO
    total = ct.full((TILE_M, TILE_N), 0.0, dtype=ct.float32)
    for k in range(ct.num_tiles(x, axis=1, shape=(TILE_M, TILE_K))):
        p = ct.load(x, index=(i, k), shape=(TILE_M, TILE_K), padding_mode=zero)
        q = ct.load(w_t, index=(k, j), shape=(TILE_K, TILE_N), padding_mode=zero)
        total = ct.mma(p, q, total)
    b = ct.astype(ct.load(bias, index=(j,), shape=(TILE_N,), padding_mode=zero), ct.float32)
    v = total + ct.reshape(b, (1, TILE_N))
    out = 0.5 * v * (1.0 + ct.tanh(0.7978845608028654 * v * (1.0 + 0.044715 * v * v)))
    ct.store(y, index=(i, j), tile=ct.astype(out, y.dtype))


def kernel():
    warps = CONFIG["warps"]
    if warps not in hinted:
        hinted[warps] = linear_gelu_tiles.replace_hints(num_worker_warps=warps)
    return hinted[warps]


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k, dtype=torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(n, dtype=torch.bfloat16))

    def forward(self, x):
        w_t, bias = self.weight.detach().t(), self.bias.detach()
        m, n = x.shape[0], w_t.shape[1]
        y = torch.empty((m, n), dtype=x.dtype, device=x.device)
        if m and n:
            tile_m, tile_n = CONFIG["TILE_M"], CONFIG["TILE_N"]
            grid = (ct.cdiv(n, tile_n), ct.cdiv(m, tile_m), 1)
            ct.launch(torch.cuda.current_stream(), grid, kernel(), (x, w_t, bias, y, tile_m, tile_n, CONFIG["TILE_K"]))
        return y
