"""Host code around Triton kernels as people write it, and whole kernels from the tutorials, checked against torch.

Run as a script: prints a JSON object, name -> "" or what was wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import NamedTuple

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
import triton.testing
from tilecast.sandbox.harness.worker import interpreters

torch.set_num_threads(1)
interpreters.install("import triton")

DEVICE = triton.runtime.driver.active.get_active_torch_device()
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def same(got, want, tolerance=1e-5):
    got, want = got.double(), want.double()
    assert got.shape == want.shape, (got.shape, want.shape)
    assert torch.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True), (got - want).abs().max()


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    num_stages: tl.constexpr,
):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        p = input_ptr + row_idx * input_row_stride + tl.arange(0, BLOCK_SIZE)
        mask = tl.arange(0, BLOCK_SIZE) < n_cols
        row = tl.load(p, mask=mask, other=-float("inf"))
        r = row - tl.max(row, axis=0)
        n = tl.exp(r)
        d = tl.sum(n, axis=0)
        tl.store(output_ptr + row_idx * output_row_stride + tl.arange(0, BLOCK_SIZE), n / d, mask=mask)


@check
def tutorial_softmax():
    x = torch.randn(100, 50, device=DEVICE)
    n_rows, n_cols = x.shape
    B = triton.next_power_of_2(n_cols)
    properties = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    NUM_SM = properties["multiprocessor_count"]
    NUM_REGS = properties["max_num_regs"]
    SMEM = properties["max_shared_mem"]
    WARP = properties["warpSize"]
    target = triton.runtime.driver.active.get_current_target()
    y = torch.empty_like(x)
    k = softmax_kernel.warmup(
        y, x, x.stride(0), y.stride(0), n_rows, n_cols, BLOCK_SIZE=B, num_stages=4, num_warps=8, grid=(1,)
    )
    k._init_handles()
    occ = NUM_REGS // (k.n_regs * WARP * 8)
    occ = min(occ, SMEM // k.metadata.shared)
    nprog = min(NUM_SM * occ, n_rows)
    k[(nprog, 1, 1)](y, x, x.stride(0), y.stride(0), n_rows, n_cols, B, 4)
    assert torch.allclose(y, x.softmax(1))


@triton.autotune(
    configs=[
        triton.Config(
            {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}, num_stages=3, num_warps=8
        ),
        triton.Config(
            {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}, num_stages=4, num_warps=4
        ),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    tl.assume(pid_m >= 0)
    tl.assume(stride_am > 0)
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(tl.float16)
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@check
def tutorial_matmul():
    for i in range(2):
        interpreters.force_config(i)
        a = torch.randn(70, 50, device=DEVICE, dtype=torch.float16)
        b = torch.randn(50, 90, device=DEVICE, dtype=torch.float16)
        c = torch.empty(70, 90, device=a.device, dtype=torch.float16)
        grid = lambda META: (triton.cdiv(70, META["BLOCK_SIZE_M"]) * triton.cdiv(90, META["BLOCK_SIZE_N"]),)
        matmul_kernel[grid](
            a,
            b,
            c,
            70,
            90,
            50,
            a.stride(0),
            a.stride(1),
            b.stride(0),
            b.stride(1),
            c.stride(0),
            c.stride(1),
            ACTIVATION="leaky_relu",
        )
        w = torch.nn.functional.leaky_relu(a.float() @ b.float())
        assert (c - w).abs().max() < 2e-2


class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        BLOCK = 1024
        n = x.numel()
        add1[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK)
        ctx.save_for_backward(x)
        return y


@triton.jit
def add1(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(y + i, tl.load(x + i, m) + 1, m)


@check
def autograd():
    x = torch.randn(3000)
    assert torch.equal(F.apply(x), x + 1)


@triton.jit
def welford(m1, v1, w1, m2, v2, w2):
    d = m2 - m1
    w = w1 + w2
    r = tl.where(w == 0.0, 0.0, w2 / w)
    return m1 + d * r, v1 + v2 + d * d * w1 * r, w


@triton.jit
def ln(x, o, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < N
    v = tl.load(x + i, mask=m, other=0.0).to(tl.float32)
    one = tl.where(m, 1.0, 0.0)
    mean, var, w = tl.reduce((v, tl.zeros_like(v), one), 0, welford)
    tl.store(o, mean)
    tl.store(o + 1, var / w)
    tl.store(o + 2, w)


@check
def welford_reduce():
    x = torch.randn(100) * 3 + 1
    o = torch.empty(3)
    ln[(1,)](x, o, 100, 128)
    assert torch.allclose(o, torch.tensor([x.mean(), x.var(unbiased=False), 100.0]), rtol=1e-4)


@triton.jit
def attn(Q, K, V, O, sm_scale, N_CTX, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGE: tl.constexpr):
    start_m = tl.program_id(0)
    offs_m = start_m * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    d = tl.arange(0, D)
    q = tl.load(Q + offs_m[:, None] * D + d[None, :])
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    qk_scale = sm_scale
    qk_scale *= 1.44269504
    lo, hi = 0, (start_m + 1) * BM
    for start_n in range(lo, hi, BN):
        start_n = tl.multiple_of(start_n, BN)
        k = tl.load(K + (start_n + offs_n)[None, :] * D + d[:, None])
        qk = tl.dot(q, k)
        mask = offs_m[:, None] >= (start_n + offs_n[None, :])
        qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        qk -= m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_ij = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + (start_n + offs_n)[:, None] * D + d[None, :])
        p = p.to(v.dtype)
        acc = tl.dot(p, v, acc)
        l_i = l_i * alpha + l_ij
        m_i = m_ij
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(O + offs_m[:, None] * D + d[None, :], acc.to(O.type.element_ty))


@check
def attention():
    q, k, v = (torch.randn(64, 32).bfloat16() for _ in range(3))
    o = torch.empty_like(q)
    attn[(4,)](q, k, v, o, 32**-0.5, 64, 32, 16, 16, STAGE=3)
    w = torch.nn.functional.scaled_dot_product_attention(
        q[None].float(), k[None].float(), v[None].float(), is_causal=True
    )[0]
    e = ((o.float() - w).norm() / w.norm()).item()
    assert e < 2e-2, e


@check
def do_bench():
    ms = triton.testing.do_bench(lambda: torch.ones(3) + 1)
    assert ms >= 0


@check
def dtype_arg():
    @triton.jit
    def f(o, DT: tl.constexpr, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(o + i, tl.full((N,), 3, DT).to(tl.float32) + tl.zeros([N], DT).to(tl.float32))

    o = torch.empty(4)
    f[(1,)](o, tl.bfloat16, 4)
    assert o.tolist() == [3.0] * 4


@check
def hooks():
    seen = []

    @triton.autotune(
        configs=[
            triton.Config({"B": 16}, pre_hook=lambda a: (a["o"].zero_(), seen.append(a["B"]))),
            triton.Config({"B": 32}, pre_hook=lambda a: a["o"].zero_()),
        ],
        key=["n"],
        reset_to_zero=["o"],
        restore_value=["x"],
    )
    @triton.jit
    def f(x, o, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))

    interpreters.force_config(0)
    x = torch.ones(40)
    o = torch.full((1,), 9.0)
    f[lambda m: (triton.cdiv(40, m["B"]),)](x, o, 40)
    assert o.item() == 40 and seen == [16], (o, seen)


@check
def namedtuple_args():
    class P(NamedTuple):
        x: object
        n: object

    @triton.jit
    def f(p, o, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(o + i, tl.load(p.x + i, mask=i < p.n, other=5.0))

    x = torch.randn(3)
    o = torch.empty(4)
    f[(1,)](P(x, 3), o, 4)
    assert torch.equal(o[:3], x) and o[3] == 5


@check
def triton_cuda_env():
    assert torch.cuda.get_device_capability()[0] >= 9 and torch.cuda.device_count() == 1
    torch.cuda.current_device()
    torch.cuda.get_device_properties("cuda").name
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        torch.zeros(2, device="cuda:0")
    torch.cuda.current_stream().wait_stream(s)
    a = torch.tensor([1.0, 2], device="cuda").to(device="cuda", dtype=torch.float16)
    assert a.dtype == torch.float16
    a.to("cuda", torch.float32)
    a.to(torch.device("cuda", 0))
    a.to(a)
    a.new_zeros(3, device="cuda")
    torch.zeros_like(a, device="cuda")
    torch.nn.Linear(3, 3).cuda().to("cuda:0").half()
    torch.empty(3, device=0)


def main() -> None:
    results = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                function()
            results[name] = ""
        except BaseException:
            results[name] = traceback.format_exc()[-1500:]
    json.dump({"results": results}, sys.stdout)


if __name__ == "__main__":
    main()
