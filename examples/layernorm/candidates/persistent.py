"""LayerNorm that reads each row once: rows stay in registers, programs stay for many rows, the next row loads meanwhile."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"PROGRAMS": 264, "num_warps": 8, "num_stages": 4}
SPACE = {"PROGRAMS": [264], "num_warps": [8, 16], "num_stages": [2, 4]}


@triton.jit
def layernorm_persistent(x_ptr, weight_ptr, bias_ptr, y_ptr, m, n, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + columns, mask=inside, other=0.0)
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=STAGES):
        start = row.to(tl.int64) * n
        x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        apart = tl.where(inside, x - tl.sum(x, axis=0) / n, 0.0)
        scale = tl.rsqrt(tl.sum(apart * apart, axis=0) / n + eps)
        y = apart * scale * weight.to(tl.float32) + bias.to(tl.float32)
        tl.store(y_ptr + start + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, dtype=torch.bfloat16)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        y = torch.empty_like(rows)
        m, n = rows.shape
        if m and n:
            layernorm_persistent[(min(m, CONFIG["PROGRAMS"]),)](
                rows, self.norm.weight, self.norm.bias, y, m, n, self.norm.eps,
                BLOCK=triton.next_power_of_2(n), STAGES=CONFIG["num_stages"], num_warps=CONFIG["num_warps"],
            )
        return y.reshape(x.shape)
