"""A plain tiled matrix add: each operand is read by its own strides, the compiler brings both into one layout."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"BLOCK_M": 32, "BLOCK_N": 64, "num_warps": 4}
SPACE = {"BLOCK_M": [32, 64, 128], "BLOCK_N": [32, 64, 128], "num_warps": [4, 8]}


@triton.jit
def add_tiles(
    a_ptr, b_ptr, c_ptr, m, n, a_row, a_column, b_row, b_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    a = tl.load(a_ptr + rows[:, None] * a_row + columns[None, :] * a_column, mask=inside)
    b = tl.load(b_ptr + rows[:, None] * b_row + columns[None, :] * b_column, mask=inside)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], a + b, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, n = a.shape
        c = torch.empty((m, n), dtype=a.dtype, device=a.device)
        if m and n:
            grid = (triton.cdiv(n, CONFIG["BLOCK_N"]), triton.cdiv(m, CONFIG["BLOCK_M"]))
            add_tiles[grid](
                a, b, c, m, n, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
                BLOCK_M=CONFIG["BLOCK_M"], BLOCK_N=CONFIG["BLOCK_N"], num_warps=CONFIG["num_warps"],
            )
        return c
