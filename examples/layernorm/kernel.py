"""A plain LayerNorm: one program a row, three sweeps over tiles of BLOCK columns for mean, variance and result."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"BLOCK": 1024, "num_warps": 8, "num_stages": 1}
SPACE = {"BLOCK": [512, 1024, 2048, 8192], "num_warps": [4, 8], "num_stages": [1, 3]}


@triton.jit
def layernorm_rows(x_ptr, weight_ptr, bias_ptr, y_ptr, n, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        sums += tl.load(x_ptr + row * n + start + columns, mask=start + columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / n
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        inside = start + columns < n
        x = tl.load(x_ptr + row * n + start + columns, mask=inside, other=0.0).to(tl.float32)
        apart = tl.where(inside, x - mean, 0.0)
        squares += apart * apart
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        inside = start + columns < n
        x = tl.load(x_ptr + row * n + start + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        y = (x - mean) * scale * weight + bias
        tl.store(y_ptr + row * n + start + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, dtype=torch.bfloat16)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        y = torch.empty_like(rows)
        m, n = rows.shape
        if m and n:
            layernorm_rows[(m,)](
                rows, self.norm.weight, self.norm.bias, y, n, self.norm.eps,
                BLOCK=CONFIG["BLOCK"], STAGES=CONFIG["num_stages"], num_warps=CONFIG["num_warps"],
            )
        return y.reshape(x.shape)
