"""Vector add in tiles of several rows, unmasked but for the last one, with hints to the L2 cache: nothing is read twice."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"ROWS": 8, "COLUMNS": 1024, "LOAD": "evict_last", "STORE": "evict_first", "num_warps": 8}
SPACE = {
    "ROWS": [8],
    "COLUMNS": [1024],
    "LOAD": ["evict_first", "evict_last"],
    "STORE": ["evict_first"],
    "num_warps": [4, 8],
}


@triton.jit
def add_rows(
    a_ptr, b_ptr, c_ptr, n,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr,
):
    start = tl.program_id(0).to(tl.int64) * (ROWS * COLUMNS)
    offsets = start + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    if start + ROWS * COLUMNS <= n:
        a = tl.load(a_ptr + offsets, eviction_policy=LOAD)
        b = tl.load(b_ptr + offsets, eviction_policy=LOAD)
        tl.store(c_ptr + offsets, a + b, eviction_policy=STORE)
    else:
        inside = offsets < n
        a = tl.load(a_ptr + offsets, mask=inside)
        b = tl.load(b_ptr + offsets, mask=inside)
        tl.store(c_ptr + offsets, a + b, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        c = torch.empty_like(a)
        n, rows, columns = a.numel(), CONFIG["ROWS"], CONFIG["COLUMNS"]
        if n:
            add_rows[(triton.cdiv(n, rows * columns),)](
                a, b, c, n, ROWS=rows, COLUMNS=columns, LOAD=CONFIG["LOAD"], STORE=CONFIG["STORE"],
                num_warps=CONFIG["num_warps"],
            )
        return c
