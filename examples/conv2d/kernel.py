"""A plain convolution as an implicit matrix product: rows are pixels, columns output channels, and the sum goes over taps and channels.

Activations are brought to NHWC first, so that the channels of a pixel lie side by side; no patch matrix is ever written.
"""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_C": 64, "num_warps": 4, "num_stages": 3}
SPACE = {"BLOCK_M": [64, 128], "BLOCK_N": [128, 256], "BLOCK_C": [64], "num_warps": [4, 8], "num_stages": [3, 4]}


@triton.jit
def conv_tiles(
    x_ptr, w_ptr, y_ptr, pixels, height, width, c, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    channels = tl.arange(0, BLOCK_C)
    area = height * width
    image, place = rows // area, rows % area
    i, j = place // width, place % width
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    chunks = tl.cdiv(c, BLOCK_C)
    for step in range(9 * chunks):
        tap = step // chunks
        down, right = tap // 3 - 1, tap % 3 - 1
        channel = step % chunks * BLOCK_C + channels
        seen = (rows < pixels) & (i + down >= 0) & (i + down < height) & (j + right >= 0) & (j + right < width)
        at = (rows + down * width + right).to(tl.int64) * c
        x = tl.load(x_ptr + at[:, None] + channel[None, :], mask=seen[:, None] & (channel < c)[None, :], other=0.0)
        w = tl.load(
            w_ptr + (tap * k + columns[None, :]) * c + channel[:, None],
            mask=(columns < k)[None, :] & (channel < c)[:, None], other=0.0,
        )
        total = tl.dot(x, w, total)
    to = (image.to(tl.int64) * k * area + place)[:, None] + columns[None, :] * area
    tl.store(y_ptr + to, total.to(y_ptr.dtype.element_ty), mask=(rows < pixels)[:, None] & (columns < k)[None, :])


class ModelNew(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, c, 3, 3, dtype=torch.float16))

    def forward(self, x):
        b, c, height, width = x.shape
        k = self.weight.shape[0]
        y = torch.empty((b, k, height, width), dtype=x.dtype, device=x.device)
        if y.numel():
            nhwc = x.permute(0, 2, 3, 1).contiguous()
            taps = self.weight.detach().permute(2, 3, 0, 1).contiguous()  # each time: the weight may have been updated
            grid = (triton.cdiv(k, CONFIG["BLOCK_N"]), triton.cdiv(b * height * width, CONFIG["BLOCK_M"]))
            conv_tiles[grid](
                nhwc, taps, y, b * height * width, height, width, c, k,
                BLOCK_M=CONFIG["BLOCK_M"], BLOCK_N=CONFIG["BLOCK_N"], BLOCK_C=CONFIG["BLOCK_C"],
                num_warps=CONFIG["num_warps"], num_stages=CONFIG["num_stages"],
            )
        return y
