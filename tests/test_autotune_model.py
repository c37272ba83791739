"""The performance model for `triton.autotune`: ranks configurations of a launch from shapes alone."""

from __future__ import annotations

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


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Triton kernel 'paste'"):
        model(tmp_path, "paste")
    with pytest.raises(UsageError, match="cannot be read"):
        perf_model(tmp_path / "none.py", "copy", lambda meta: (1,))
    with pytest.raises(UsageError, match="unknown GPU"):
        perf_model(tmp_path / "kernels.py", "copy", lambda meta: (1,), gpu="Voodoo 2")
