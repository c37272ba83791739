"""Product with tensor descriptors and one program a multiprocessor: loads of the next tile overlap the store of the last."""
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

CONFIG = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3}
SPACE = {
    "BLOCK_M": [128],
    "BLOCK_N": [128, 256],
    "BLOCK_K": [64],
    "GROUP": [8],
    "num_warps": [8],
    "num_stages": [3, 4],
}


@triton.jit
def matmul_persistent(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):
    down, across = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0), flatten=True):
        first = tile // (GROUP * across) * GROUP
        height = min(down - first, GROUP)
        row = (first + tile % (GROUP * across) % height) * BLOCK_M
        column = tile % (GROUP * across) // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            total = tl.dot(a.load([row, step * BLOCK_K]), b.load([step * BLOCK_K, column]), total)
        # Stored in halves: room for the output tile would otherwise cost a stage of the loads.
        halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        c.store([row, column], left.to(c.dtype))
        c.store([row, column + BLOCK_N // 2], right.to(c.dtype))


def described(x):
    """``x`` as descriptors want it: rows contiguous and a multiple of 16 bytes apart, from an aligned start."""
    if x.stride(1) == 1 and x.stride(0) % 8 == 0 and x.stride(0) >= x.shape[1] and x.data_ptr() % 16 == 0:
        return x
    room = empty_rows(x.shape[0], x.shape[1], x)
    room.copy_(x)
    return room


def empty_rows(rows, columns, like):
    return torch.empty((rows, (columns + 7) // 8 * 8), dtype=like.dtype, device=like.device)[:, :columns]


def multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        c = empty_rows(m, n, a)
        if m and n:
            block_m, block_n, block_k = CONFIG["BLOCK_M"], CONFIG["BLOCK_N"], CONFIG["BLOCK_K"]
            tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
            matmul_persistent[(min(tiles, multiprocessors(a.device)),)](
                TensorDescriptor.from_tensor(described(a), [block_m, block_k]),
                TensorDescriptor.from_tensor(described(b), [block_k, block_n]),
                TensorDescriptor.from_tensor(c, [block_m, block_n // 2]),
                m, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=CONFIG["GROUP"],
                num_warps=CONFIG["num_warps"], num_stages=CONFIG["num_stages"],
            )
        return c.contiguous()
