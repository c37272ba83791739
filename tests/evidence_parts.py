"""Problems and kernels for the tests of evidence."""

from __future__ import annotations

import hashlib

from tilecast.sandbox.problem import Problem
from tilecast.sandbox.source import Candidate

_HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

ADD_PROBLEM = """
import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 96}}


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs(n=1 << 20):
    return [torch.randn(n), torch.randn(n)]


def get_init_inputs():
    return []
"""

MATMUL_PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n, dtype=torch.float16))

    def forward(self, a):
        return a @ self.weight


def get_inputs(n=1024):
    return [torch.randn(n, n, dtype=torch.float16)]


def get_init_inputs(n=1024):
    return [n]
"""

ADD = (
    _HEAD
    + """
CONFIG = {"BLOCK": 1024}


@triton.jit
def add(a, b, c, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        n = a.numel()
        add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](a, b, c, n, BLOCK=CONFIG["BLOCK"], num_warps=4)
        return c
"""
)

SPILLING = (
    _HEAD
    + """
@triton.jit
def crowded(a, b, c, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(a + at), tl.load(b + at)
    z = x * tl.sum(y, 0) + y * tl.sum(x, 0)
    tl.store(c + at, z / tl.max(z, 0) + x - y)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        crowded[(1,)](a, b, c, BLOCK=8192, num_warps=1)
        return c
"""
)

MATMUL = (
    _HEAD
    + """
CONFIG = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 2}


@triton.jit
def product(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, n, BK):
        at = k + tl.arange(0, BK)
        total = tl.dot(tl.load(a + i[:, None] * n + at), tl.load(b + at[:, None] * n + j), total)
    tl.store(c + i[:, None] * n + j, total.to(tl.float16))


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n, dtype=torch.float16))

    def forward(self, a):
        n, c = a.shape[0], torch.empty_like(a)
        options = {name: CONFIG[name] for name in ("BM", "BN", "BK", "num_warps", "num_stages")}
        product[(n // CONFIG["BM"], n // CONFIG["BN"])](a, self.weight, c, n, **options)
        return c
"""
)

TUNED = (
    _HEAD
    + """
@triton.autotune(
    [triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 2048}, num_warps=8)], key=["n"], reset_to_zero=["c"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(a, b, c, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(c + at, tl.load(a + at) + tl.load(b + at))
    else:
        tl.store(c + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        half = (a * 2.0).relu()
        c = torch.empty_like(a)
        tuned[lambda meta: (triton.cdiv(a.numel(), meta["BLOCK"]),)](half, b, c, a.numel())
        return c
"""
)

ENDLESS = (
    _HEAD
    + """
@triton.jit
def endless(a, c):
    for i in tl.static_range(100000):
        tl.store(c + i, tl.load(a + i))


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        endless[(1,)](a, c)
        return c
"""
)

CRASHING = (
    _HEAD
    + """

@triton.constexpr_function
def crash():
    return __import__("os").kill(__import__("os").getpid(), 11)


@triton.jit
def first(a, c):
    tl.store(c, tl.load(a))


@triton.jit
def second(a, c):
    tl.store(c, tl.load(a) + crash())


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        first[(1,)](a, c)
        second[(1,)](a, c)
        return c
"""
)

READS_VALUES = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        assert a.is_cuda and a.device.type == "cuda"
        if torch.arange(5, device=a.device).sum().item() != 10:
            raise ValueError("values are wrong")
        return torch.add(a, b)
"""

CUTILE = """
import cuda.tile as ct
import torch
import torch.nn as nn


@ct.kernel
def add(a, b, c, TILE: ct.Constant[int]):
    i = ct.bid(0)
    x = ct.load(a, index=(i,), shape=(TILE,))
    y = ct.load(b, index=(i,), shape=(TILE,))
    ct.store(c, index=(i,), tile=x + y)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        ct.launch(torch.cuda.current_stream(), (ct.cdiv(a.numel(), 1024), 1, 1), add, (a, b, c, 1024))
        return c
"""


def problem(source: str = ADD_PROBLEM, name: str = "made") -> Problem:
    """A problem from its text."""
    return Problem(name=name, path="", source=source, sha256=hashlib.sha256(source.encode()).hexdigest())


def candidate(source: str, name: str = "made") -> Candidate:
    """A candidate from its text."""
    return Candidate(name=name, source=source)
