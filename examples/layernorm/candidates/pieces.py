"""LayerNorm with a row of 5120 in five tiles of 1024: one tile of 8192 would leave three lanes in eight idle."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"PROGRAMS": 1056, "num_warps": 4}
SPACE = {
    "PROGRAMS": [528, 1056, 16384],
    "num_warps": [2, 4],
}


@triton.jit
def store_piece(y_ptr, weight_ptr, bias_ptr, columns, inside, apart, scale):
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + columns, (apart * scale * weight + bias).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def layernorm_pieces(x_ptr, weight_ptr, bias_ptr, y_ptr, m, n, eps, PIECE: tl.constexpr):
    c0 = tl.arange(0, PIECE)
    c1, c2, c3, c4 = c0 + PIECE, c0 + 2 * PIECE, c0 + 3 * PIECE, c0 + 4 * PIECE
    i0, i1, i2, i3, i4 = c0 < n, c1 < n, c2 < n, c3 < n, c4 < n
    for row in range(tl.program_id(0), m, tl.num_programs(0)):
        x_row, y_row = x_ptr + row.to(tl.int64) * n, y_ptr + row.to(tl.int64) * n
        x0 = tl.load(x_row + c0, mask=i0, other=0.0).to(tl.float32)
        x1 = tl.load(x_row + c1, mask=i1, other=0.0).to(tl.float32)
        x2 = tl.load(x_row + c2, mask=i2, other=0.0).to(tl.float32)
        x3 = tl.load(x_row + c3, mask=i3, other=0.0).to(tl.float32)
        x4 = tl.load(x_row + c4, mask=i4, other=0.0).to(tl.float32)
        mean = tl.sum((x0 + x1) + (x2 + x3) + x4, axis=0) / n
        d0, d1, d2 = tl.where(i0, x0 - mean, 0.0), tl.where(i1, x1 - mean, 0.0), tl.where(i2, x2 - mean, 0.0)
        d3, d4 = tl.where(i3, x3 - mean, 0.0), tl.where(i4, x4 - mean, 0.0)
        scale = tl.rsqrt(tl.sum((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3) + d4 * d4, axis=0) / n + eps)
        store_piece(y_row, weight_ptr, bias_ptr, c0, i0, d0, scale)
        store_piece(y_row, weight_ptr, bias_ptr, c1, i1, d1, scale)
        store_piece(y_row, weight_ptr, bias_ptr, c2, i2, d2, scale)
        store_piece(y_row, weight_ptr, bias_ptr, c3, i3, d3, scale)
        store_piece(y_row, weight_ptr, bias_ptr, c4, i4, d4, scale)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, dtype=torch.bfloat16)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        y = torch.empty_like(rows)
        m, n = rows.shape
        if m and n:
            piece = max(16, triton.next_power_of_2(triton.cdiv(n, 5)))
            layernorm_pieces[(min(m, CONFIG["PROGRAMS"]),)](
                rows, self.norm.weight, self.norm.bias, y, m, n, self.norm.eps,
                PIECE=piece, num_warps=CONFIG["num_warps"],
            )
        return y.reshape(x.shape)
