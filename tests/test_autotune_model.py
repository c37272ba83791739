"""The performance model for `triton.autotune`: ranks configurations of a launch from shapes alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tilecast.sandbox.errors import UsageError
from tilecast.tools.forecast.autotune import perf_model

FILE = """
import triton
import triton.language as tl

@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)
"""


class FakeTensor:
    """As much of a tensor as the model may ask for."""

    def __init__(self, n: int) -> None:
        self.shape, self.dtype = (n,), "torch.float32"

    def stride(self) -> tuple[int, ...]:
        return (1,)


def model(tmp_path: Path, kernel: str = "copy") -> Any:
    file = tmp_path / "kernels.py"
    file.write_text(FILE)
    return perf_model(file, kernel, lambda meta: (-(-meta["n"] // meta["BLOCK"]),), gpu="H200")


def test_tiny_blocks_are_forecast_slower(tmp_path: Path) -> None:
    expected = model(tmp_path)
    n = 1 << 26
    launch = {"x": FakeTensor(n), "y": FakeTensor(n), "n": n, "num_stages": 3, "num_ctas": 1}
    good = expected(**launch, BLOCK=2048, num_warps=8)
    bad = expected(**launch, BLOCK=32, num_warps=1)
    floor = 2 * 4 * n / 4.3e12 * 1e3
    assert bad > 2 * good and 0.8 * floor < good < 3 * floor


PRODUCT = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(tl.load(a + rm[:, None] * K + (k + rk)[None, :]), tl.load(b + (k + rk)[:, None] * N + rn[None, :]), acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16))
"""


class Square(FakeTensor):
    def __init__(self, n: int) -> None:
        self.shape, self.dtype = (n, n), "torch.bfloat16"  # type: ignore[assignment]

    def stride(self) -> tuple[int, ...]:
        return (self.shape[0], 1)


@pytest.mark.parametrize(("tile", "stages", "runs"), [(256, 3, True), (256, 4, False), (128, 4, True)])
def test_tiles_that_cannot_fit_come_last(tmp_path: Path, tile: int, stages: int, runs: bool) -> None:
    # 256 x 64 and 64 x 256 of two bytes are 64 KiB a stage; an H200's block has 227 KiB.
    file = tmp_path / "product.py"
    file.write_text(PRODUCT)
    expected = perf_model(file, "product", lambda meta: (4096 // meta["BM"], 4096 // meta["BN"]), gpu="H200")
    operands = {"a": Square(4096), "b": Square(4096), "c": Square(4096), "N": 4096, "K": 4096}
    ms = expected(**operands, BM=tile, BN=tile, BK=64, num_warps=8, num_stages=stages, grid=None, warmup=False)
    assert math.isfinite(ms) is runs


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Triton kernel 'paste'"):
        model(tmp_path, "paste")
    with pytest.raises(UsageError, match="cannot be read"):
        perf_model(tmp_path / "none.py", "copy", lambda meta: (1,))
    with pytest.raises(UsageError, match="unknown GPU"):
        perf_model(tmp_path / "kernels.py", "copy", lambda meta: (1,), gpu="Voodoo 2")
