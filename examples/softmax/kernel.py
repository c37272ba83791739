"""A plain tiled softmax: one program a row, two sweeps over tiles of BLOCK columns."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"BLOCK": 256, "num_warps": 4, "num_stages": 1}
SPACE = {
    "BLOCK": [256, 512, 1024, 2048, 4096],
    "num_warps": [2, 4, 8, 16],
    "num_stages": [1, 2, 3],
}


@triton.jit
def softmax_rows(x_ptr, y_ptr, n, x_stride, y_stride, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        inside = start + columns < n
        tile = tl.load(x_ptr + row * x_stride + start + columns, mask=inside, other=-float("inf"))
        new_top = tl.maximum(top, tl.max(tile, axis=0))
        # A row may begin with tiles of -inf (masked scores): subtract 0 there, not -inf.
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(tile - shift), axis=0)
        top = new_top
    shift = tl.where(top == -float("inf"), 0.0, top)
    for start in tl.range(0, n, BLOCK, num_stages=STAGES):
        inside = start + columns < n
        tile = tl.load(x_ptr + row * x_stride + start + columns, mask=inside, other=-float("inf"))
        tl.store(y_ptr + row * y_stride + start + columns, tl.exp(tile - shift) / total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        rows = rows if rows.stride(-1) == 1 else rows.contiguous()
        out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
        m, n = rows.shape
        if m and n:
            softmax_rows[(m,)](
                rows, out, n, rows.stride(0), out.stride(0),
                BLOCK=CONFIG["BLOCK"], STAGES=CONFIG["num_stages"], num_warps=CONFIG["num_warps"],
            )
        return out.reshape(x.shape)
