"""Row softmax with a whole row in one tile, kept in registers: every element is read once."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"num_warps": 8, "EVICT": "evict_first"}
SPACE = {"num_warps": [4, 8, 16], "EVICT": ["", "evict_first"]}


@triton.jit
def softmax_tile(x_ptr, y_ptr, n, x_stride, y_stride, BLOCK: tl.constexpr, EVICT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf"), eviction_policy=EVICT)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * y_stride + columns, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        rows = rows if rows.stride(-1) == 1 else rows.contiguous()
        out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
        m, n = rows.shape
        if m and n:
            softmax_tile[(m,)](
                rows, out, n, rows.stride(0), out.stride(0),
                BLOCK=triton.next_power_of_2(n), EVICT=CONFIG["EVICT"], num_warps=CONFIG["num_warps"],
            )
        return out.reshape(x.shape)
