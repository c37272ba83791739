"""The abstract evaluator: what a candidate launches and moves, read from its text without running it."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from tilecast.tools.forecast.trace import ProblemTrace, trace_candidate, trace_problem
from tilecast.tools.forecast.trace.work import pattern

ADD = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return a + b

def get_inputs(n=1024):
    return [torch.randn(n), torch.randn(n)]

def get_init_inputs():
    return []
"""
MATMUL = """
import torch
import torch.nn as nn
WORKLOADS = {"small": {"m": 32, "n": 16, "k": 8}}

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs(m=256, n=512, k=128):
    return [torch.randn(m, k, dtype=torch.float16), torch.randn(k, n, dtype=torch.float16)]

def get_init_inputs():
    return []
"""


def problem(source: str, workload: str = "full") -> ProblemTrace:
    found = trace_problem(source, workload)
    assert found is not None
    return found


def candidate(body: str, config: str = "{}") -> str:
    head = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\nimport cuda.tile as ct\n"
    return f"{head}CONFIG = {config}\n{textwrap.dedent(body)}"


def test_a_problem_by_shapes() -> None:
    found = problem(MATMUL)
    assert [t.shape for t in found.outputs] == [(256, 512)]
    assert found.flops == 2 * 256 * 512 * 128
    assert found.min_bytes == 2 * (256 * 128 + 128 * 512 + 256 * 512)
    assert problem(MATMUL, "small").flops == 2 * 32 * 16 * 8


def test_a_table_that_is_gathered_from_counts_as_the_rows_read() -> None:
    source = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(1000000, 64))
    def forward(self, i):
        return self.table[i].sum(dim=1)
def get_inputs():
    return [torch.randint(0, 1000000, (10, 4))]
def get_init_inputs():
    return []
"""
    # 40 rows of 64 floats, 40 indices of 8 bytes (read with the rows), 10 results of 64 floats.
    assert problem(source).min_bytes == pytest.approx(40 * 64 * 4 + 40 * 8 + 10 * 64 * 4, rel=0.05)


VECTOR = """
@triton.jit
def add(a, b, c, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(c + offs, tl.load(a + offs, mask=mask) + tl.load(b + offs, mask=mask), mask=mask)

class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        add[(triton.cdiv(a.numel(), CONFIG["BLOCK"]),)](a, b, c, a.numel(), BLOCK=CONFIG["BLOCK"], num_warps=2)
        return c
"""


def test_a_vector_kernel_moves_each_byte_once() -> None:
    trace = trace_candidate(candidate(VECTOR, '{"BLOCK": 256}'), problem(ADD))
    (launch,) = trace.launches
    assert trace.complete and launch.grid == (4,) and launch.options["num_warps"] == 2
    assert launch.work.load_bytes * launch.programs == 2 * 1024 * 4
    assert launch.work.store_bytes * launch.programs == 1024 * 4
    assert launch.work.vector_weighted / launch.work.load_bytes == 16


def test_config_overrides_reach_the_launch() -> None:
    trace = trace_candidate(candidate(VECTOR, '{"BLOCK": 256}'), problem(ADD), {"BLOCK": 64})
    assert trace.launches[0].grid == (16,)


PRODUCT = """
@triton.jit
def mm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16))

class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        mm[(M // 64, N // 32)](a, b, c, M, N, K, BM=64, BN=32, BK=16)
        return c
"""


def test_a_tiled_product_reads_by_its_tiles() -> None:
    (launch,) = trace_candidate(candidate(PRODUCT), problem(MATMUL)).launches
    total = launch.work.load_bytes * launch.programs
    # a is read once for each column of tiles, b once for each row of tiles.
    assert total == 2 * (256 * 128 * (512 // 32) + 128 * 512 * (256 // 64))
    assert launch.work.dot_flops * launch.programs == 2 * 256 * 512 * 128
    assert launch.work.dot_shape == (64, 32, 16)
    assert launch.work.loops[0].trips == 8


def test_the_same_product_in_cutile() -> None:
    source = candidate("""
    @ct.kernel
    def mm(a, b, c, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
        i, j = ct.bid(0), ct.bid(1)
        acc = ct.full((TM, TN), 0.0, dtype=ct.float32)
        for k in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
            acc = ct.mma(ct.load(a, index=(i, k), shape=(TM, TK)), ct.load(b, index=(k, j), shape=(TK, TN)), acc)
        ct.store(c, index=(i, j), tile=ct.astype(acc, ct.float16))

    class ModelNew(nn.Module):
        def forward(self, a, b):
            c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
            ct.launch(torch.cuda.current_stream(), (4, 16, 1), mm, (a, b, c, 64, 32, 16))
            return c
    """)
    (launch,) = trace_candidate(source, problem(MATMUL)).launches
    assert launch.work.load_bytes * launch.programs == 2 * (256 * 128 * 16 + 128 * 512 * 4)
    assert launch.work.store_bytes * launch.programs == 2 * 256 * 512


def test_torch_operations_count_their_passes() -> None:
    source = candidate("""
    class ModelNew(nn.Module):
        def forward(self, a, b):
            return torch.mm(a.float(), b.float()).half()
    """)
    trace = trace_candidate(source, problem(MATMUL))
    assert [op.kind for op in trace.ops] == ["elementwise", "elementwise", "library", "elementwise"]
    assert trace.ops[0].bytes == 256 * 128 * (2 + 4) and trace.ops[2].dtype == "float32"


def test_compiled_functions_are_one_pass() -> None:
    source = candidate("""
    @torch.compile
    def f(a, b):
        return torch.exp(a) * 2 + b

    class ModelNew(nn.Module):
        def forward(self, a, b):
            return f(a, b)
    """)
    (op,) = trace_candidate(source, problem(ADD)).ops
    assert op.kind == "fused" and op.bytes == 3 * 1024 * 4


def test_a_guarded_program_counts_as_idle() -> None:
    source = candidate("""
    @triton.jit
    def half(a, c, n, BLOCK: tl.constexpr):
        if tl.program_id(0) % 2 == 0:
            offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(c + offs, tl.load(a + offs))

    class ModelNew(nn.Module):
        def forward(self, a, b):
            c = torch.empty_like(a)
            half[(64,)](a, c, 1024, BLOCK=16)
            return c
    """)
    (launch,) = trace_candidate(source, problem(ADD)).launches
    assert 0.3 < launch.work.load_bytes / (16 * 4) < 0.7


@pytest.mark.parametrize(
    "body",
    [
        "class ModelNew(nn.Module):\n    def forward(self, a, b):\n        return [[0] * 10 ** 9] * 10 ** 9\n",
        "class ModelNew(nn.Module):\n    def forward(self, a, b):\n        return 10 ** 10 ** 10\n",
        "class ModelNew(nn.Module):\n    def forward(self, a, b):\n        while True:\n            a = a + b\n",
        "def f(n):\n    return f(n + 1)\nclass ModelNew(nn.Module):\n    def forward(self, a, b):\n        return f(0)\n",
        "class ModelNew(nn.Module):\n    def forward(self, a, b):\n        __import__('os').abort()\n        return a + b\n",
        "class ModelNew(nn.Module):\n    def forward(self, a, b):\n        return ().__class__.__bases__[0].__subclasses__()\n",
        "not python at all (",
        "",
    ],
)
def test_hostile_texts_cost_little_and_run_nothing(body: str) -> None:
    trace_candidate(candidate(body), problem(ADD))


def test_what_cannot_be_walked_is_said() -> None:
    trace = trace_candidate("class Other: pass", problem(ADD))
    assert not trace.complete and "ModelNew" in trace.reason
    assert trace_problem("x = 1") is None


def test_access_patterns_by_hand() -> None:
    rows, cols = np.arange(4)[:, None] * 1000, np.arange(32)[None, :]
    straight = pattern(rows + cols, (4, 32), 4, None)
    assert (straight.run, straight.vector_bytes, straight.sector_bytes) == (32, 16, 4 * 128)
    strided = pattern(np.arange(128) * 1000, (128,), 4, None)
    assert (strided.run, strided.sector_bytes) == (1, 128 * 32)
    shared = pattern(cols, (4, 32), 4, None)
    assert shared.useful_bytes == 32 * 4
    masked = pattern(np.arange(128), (128,), 4, (np.arange(128) < 32).astype(np.int64))
    assert masked.active == 0.25 and masked.useful_bytes == 128
    odd = pattern(np.arange(4)[:, None] * 1001 + cols, (4, 32), 2, None)
    assert odd.vector_bytes == 2
