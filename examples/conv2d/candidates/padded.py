"""Convolution over activations that a first kernel brings to NHWC with a border of zeros: the main loop needs no mask for pixels."""
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIG = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_C": 64, "num_warps": 8, "num_stages": 3}
SPACE = {
    "BLOCK_M": [128],
    "BLOCK_N": [128, 256],
    "BLOCK_C": [64],
    "num_warps": [8],
    "num_stages": [3, 4],
}


@triton.jit
def pack(x_ptr, packed_ptr, c, height, width, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    places = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channels = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    image = tl.program_id(2).to(tl.int64)
    i, j = places // (width + 2) - 1, places % (width + 2) - 1
    real = (i >= 0) & (i < height) & (j >= 0) & (j < width)
    x = tl.load(
        x_ptr + (image * c + channels[:, None]) * height * width + (i * width + j)[None, :],
        mask=(channels < c)[:, None] & real[None, :], other=0.0,
    )
    room = (height + 2) * (width + 2)
    tl.store(
        packed_ptr + (image * room + places[:, None]) * c + channels[None, :], tl.trans(x),
        mask=(places < room)[:, None] & (channels < c)[None, :],
    )


@triton.jit
def conv_padded(
    packed_ptr, w_ptr, y_ptr, pixels, height, width, c, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    channels = tl.arange(0, BLOCK_C)
    area = height * width
    known = tl.minimum(rows, pixels - 1)
    image, place = known // area, known % area
    corner = (image * (height + 2) + place // width) * (width + 2) + place % width
    x_ptrs = packed_ptr + corner.to(tl.int64)[:, None] * c + channels[None, :]
    w_ptrs = w_ptr + columns[None, :] * c + channels[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    chunks = tl.cdiv(c, BLOCK_C)
    for step in range(9 * chunks):
        tap, first = step // chunks, step % chunks * BLOCK_C
        left = first + channels < c
        x = tl.load(x_ptrs + (tap // 3 * (width + 2) + tap % 3) * c + first, mask=left[None, :], other=0.0)
        w = tl.load(w_ptrs + tap * k * c + first, mask=left[:, None] & (columns < k)[None, :], other=0.0)
        total = tl.dot(x, w, total)
    to = (image.to(tl.int64) * k * area + place)[:, None] + columns[None, :] * area
    tl.store(y_ptr + to, total.to(y_ptr.dtype.element_ty), mask=(rows < pixels)[:, None] & (columns < k)[None, :])


class ModelNew(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, c, 3, 3, dtype=torch.float16))

    def forward(self, x):
        x = x.contiguous()
        b, c, height, width = x.shape
        k = self.weight.shape[0]
        y = torch.empty((b, k, height, width), dtype=x.dtype, device=x.device)
        if y.numel():
            packed = torch.empty((b, height + 2, width + 2, c), dtype=x.dtype, device=x.device)
            places = (height + 2) * (width + 2)
            pack[(triton.cdiv(places, 64), triton.cdiv(c, 64), b)](
                x, packed, c, height, width, BLOCK_P=64, BLOCK_C=64, num_warps=4
            )
            taps = self.weight.detach().permute(2, 3, 0, 1).contiguous()
            grid = (triton.cdiv(k, CONFIG["BLOCK_N"]), triton.cdiv(b * height * width, CONFIG["BLOCK_M"]))
            conv_padded[grid](
                packed, taps, y, b * height * width, height, width, c, k,
                BLOCK_M=CONFIG["BLOCK_M"], BLOCK_N=CONFIG["BLOCK_N"], BLOCK_C=CONFIG["BLOCK_C"],
                num_warps=CONFIG["num_warps"], num_stages=CONFIG["num_stages"],
            )
        return y
