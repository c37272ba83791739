"""LayerNorm in cuTile with a row as the largest power of two in it and the rest: 5120 is 4096 and 1024, no lane is idle."""
import cuda.tile as ct
import torch
import torch.nn as nn

CONFIG = {"occupancy": 4, "warps": 4, "tma": 0}
SPACE = {
    "occupancy": [1, 4, 8],
    "warps": [4, 8],
    "tma": [0],
}
hinted = {}
"""Kernels by their hints: compiled code, nothing of a call."""


@ct.kernel
def layernorm_split(
    x, weight, bias, y, n, eps, MAIN: ct.Constant[int], REST: ct.Constant[int], TMA: ct.Constant[bool]
):
    row = ct.bid(0)
    after = MAIN // REST
    zero = ct.PaddingMode.ZERO
    inside = ct.reshape(MAIN + ct.arange(REST, dtype=ct.int32) < n, (1, REST))
    p = ct.astype(ct.load(x, index=(row, 0), shape=(1, MAIN), allow_tma=TMA), ct.float32)
    q = ct.astype(ct.load(x, index=(row, after), shape=(1, REST), padding_mode=zero, allow_tma=TMA), ct.float32)
    mean = (ct.sum(p, axis=1, keepdims=True) + ct.sum(q, axis=1, keepdims=True)) / n
    p = p - mean
    q = ct.where(inside, q - mean, 0.0)
    squares = ct.sum(p * p, axis=1, keepdims=True) + ct.sum(q * q, axis=1, keepdims=True)
    scale = ct.rsqrt(squares / n + eps)
    w = ct.reshape(ct.astype(ct.load(weight, index=(0,), shape=(MAIN,), allow_tma=TMA), ct.float32), (1, MAIN))
    b = ct.reshape(ct.astype(ct.load(bias, index=(0,), shape=(MAIN,), allow_tma=TMA), ct.float32), (1, MAIN))
    ct.store(y, index=(row, 0), tile=ct.astype(p * scale * w + b, y.dtype), allow_tma=TMA)
    v = ct.astype(ct.load(weight, index=(after,), shape=(REST,), padding_mode=zero, allow_tma=TMA), ct.float32)
    c = ct.astype(ct.load(bias, index=(after,), shape=(REST,), padding_mode=zero, allow_tma=TMA), ct.float32)
    out = q * scale * ct.reshape(v, (1, REST)) + ct.reshape(c, (1, REST))
    ct.store(y, index=(row, after), tile=ct.astype(out, y.dtype), allow_tma=TMA)


def kernel():
    key = (CONFIG["occupancy"], CONFIG["warps"])
    if key not in hinted:
        hinted[key] = layernorm_split.replace_hints(occupancy=key[0], num_worker_warps=key[1])
    return hinted[key]


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, dtype=torch.bfloat16)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
        m, n = rows.shape
        if m and n > 1:
            weight, bias = self.norm.weight.detach(), self.norm.bias.detach()
            main = 1 << ((n - 1).bit_length() - 1)  # the largest power of two below n, so that there is always a rest
            rest = 1 << (n - main - 1).bit_length()
            arguments = (rows, weight, bias, y, n, self.norm.eps, main, rest, bool(CONFIG["tma"]))
            ct.launch(torch.cuda.current_stream(), (m, 1, 1), kernel(), arguments)
        elif m:
            y.copy_(self.norm.bias)  # a single value is its own mean
        return y.reshape(x.shape)
