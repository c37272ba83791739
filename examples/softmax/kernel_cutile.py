"""Row softmax in cuTile: one block a few rows, each row a single tile that is as wide as the next power of two."""
import cuda.tile as ct
import torch
import torch.nn as nn

CONFIG = {"ROWS": 1, "occupancy": 1, "warps": 4, "tma": 1}
SPACE = {"ROWS": [1], "occupancy": [1, 4, 8], "warps": [4, 8], "tma": [0, 1]}
hinted = {}
"""Kernels by their hints: compiled code, nothing of a call."""


@ct.kernel
def softmax_rows(x, y, ROWS: ct.Constant[int], TILE: ct.Constant[int], TMA: ct.Constant[bool]):
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(ROWS, TILE), padding_mode=ct.PaddingMode.NEG_INF, allow_tma=TMA)
    top = ct.max(t, axis=1, keepdims=True)
    e = ct.exp(t - top)
    ct.store(y, index=(i, 0), tile=e / ct.sum(e, axis=1, keepdims=True), allow_tma=TMA)


def kernel():
    key = (CONFIG["occupancy"], CONFIG["warps"])
    if key not in hinted:
        hinted[key] = softmax_rows.replace_hints(occupancy=key[0], num_worker_warps=key[1])
    return hinted[key]


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
        m, n = rows.shape
        if m and n:
            tile = 1 << (n - 1).bit_length()
            arguments = (rows, y, CONFIG["ROWS"], tile, bool(CONFIG["tma"]))
            ct.launch(torch.cuda.current_stream(), (ct.cdiv(m, CONFIG["ROWS"]), 1, 1), kernel(), arguments)
        return y.reshape(x.shape)
