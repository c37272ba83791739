"""Languages as the host sees them: recognised and turned as text."""

from __future__ import annotations

from pathlib import Path

import evidence_parts as parts
import pytest

from tilecast.prompts import languages as guides
from tilecast.sandbox.harness.worker import failures
from tilecast.sandbox.languages import (
    LANGUAGES,
    find_tunables,
    language_named,
    language_of,
    languages_in,
)
from tilecast.sandbox.source import Candidate

CUDA = '''
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#define BLOCK 256
constexpr int UNROLL = 4;
__global__ void k(float* x) { x[blockIdx.x * BLOCK + threadIdx.x] *= UNROLL; }
"""
module = load_inline("m", "", SOURCE)


class ModelNew(nn.Module):
    pass
'''
CPP = CUDA.replace("__global__ ", "").replace("#define BLOCK 256", "#pragma omp parallel for")

TRITON = """
import torch, triton
import triton.language as tl
import torch.nn as nn

WARPS = 8


@triton.jit
def k(x, y, n, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):  # ünïcode
        y = torch.empty_like(x)
        n = x.numel()
        k[(triton.cdiv(n, 1024),)](x, y, n, BLOCK_SIZE=1024, HEAD_DIM=64)
        size = 512
        k[(triton.cdiv(n, size),)](x, y, n, size, 64, num_warps=WARPS)
        return y
"""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (parts.ADD, "triton"),
        (parts.CUTILE, "cutile"),
        (CUDA, "cuda"),
        (CPP, "cpp"),
        (parts.READS_VALUES, "torch"),
        ("def", "unknown"),
    ],
)
def test_recognised(source: str, name: str) -> None:
    assert language_of(source) == name


def test_several_in_one_text() -> None:
    assert languages_in(parts.ADD + parts.CUTILE) == ["cutile", "triton"]
    assert languages_in("x = (") == []


def test_every_language_has_a_guide() -> None:
    assert set(LANGUAGES) == set(guides())
    assert language_named("cutile").title == "cuTile"
    with pytest.raises(KeyError, match="triton"):
        language_named("halide")


def test_a_kernel_with_config_is_left_to_it() -> None:
    assert find_tunables(Candidate(name="a", source=parts.ADD)) is None
    assert find_tunables(Candidate(name="a", source=parts.TUNED)) is None  # autotune turns it already
    assert find_tunables(Candidate(name="a", source="def")) is None


def test_triton_literals_are_found_and_written() -> None:
    found = find_tunables(Candidate(name="a", source=TRITON))
    assert found is not None
    assert found.values == {"k.BLOCK_SIZE": 1024, "k.num_warps": 4, "k.BLOCK_SIZE.2": 512, "k.num_warps.2": 8}
    assert found.options["k.BLOCK_SIZE"] == [256, 512, 1024, 2048, 4096] and 8 in found.options["k.num_warps.2"]
    assert found.write({}).source == TRITON and found.write(found.values).source == TRITON
    text = found.write({"k.BLOCK_SIZE": 2048, "k.num_warps": 2, "k.BLOCK_SIZE.2": 256, "k.num_warps.2": 1}).source
    # A grid that repeats the number changes with it; a size that is no block is left alone.
    assert "k[(triton.cdiv(n, 2048),)](x, y, n, BLOCK_SIZE=2048, HEAD_DIM=64, num_warps=2)" in text
    assert "size = 256\n" in text and "WARPS = 1\n" in text and "n, size, 64, num_warps=WARPS)" in text
    again = find_tunables(Candidate(name="a", source=text))
    assert again is not None and again.values["k.BLOCK_SIZE"] == 2048


def test_a_name_assigned_twice_is_nobodys_literal() -> None:
    found = find_tunables(Candidate(name="a", source=TRITON.replace("size = 512", "size = 512 if n > 9 else 64")))
    assert found is not None and "k.BLOCK_SIZE.2" not in found.values and "BLOCK_SIZE" in found.values
    twice = TRITON.replace("        size = 512\n", "        size = 512\n        size = 256\n")
    found = find_tunables(Candidate(name="a", source=twice))
    assert found is not None and found.values["BLOCK_SIZE"] == 1024


def test_cutile_tiles_and_hints() -> None:
    source = parts.CUTILE.replace("@ct.kernel", "@ct.kernel(occupancy=2)")
    found = find_tunables(Candidate(name="a", source=source))
    assert found is not None and found.values == {"TILE": 1024, "occupancy": 2}
    text = found.write({"TILE": 512, "occupancy": 4}).source
    assert "(ct.cdiv(a.numel(), 512), 1, 1), add, (a, b, c, 512))" in text and "@ct.kernel(occupancy=4)" in text


def test_constants_of_native_code() -> None:
    found = find_tunables(Candidate(name="a", source=CUDA))
    assert found is not None and found.values == {"BLOCK": 256, "UNROLL": 4}
    text = found.write({"BLOCK": 512}).source
    assert "#define BLOCK 512\n" in text and "UNROLL = 4;" in text
    doubled = CUDA.replace("#define BLOCK 256", "#define BLOCK 256\n#define BLOCK 128")
    assert find_tunables(Candidate(name="a", source=doubled)).values == {"UNROLL": 4}  # type: ignore[union-attr]


def test_the_recorded_candidates(shared_dir: Path) -> None:
    expected = {"tr": "triton", "ct": "cutile", "th": "torch"}
    files = sorted(shared_dir.glob("corpus/*/candidates/*.py"))
    assert len(files) > 400
    for file in files:
        source = file.read_text()
        assert language_of(source) == expected[file.stem[:2]]


def test_cutiles_own_errors_are_those_of_a_compiler() -> None:
    """Whatever its kind: the assembler that gives up, a feature that is missing, a wrong type."""
    exceptions = pytest.importorskip("cuda.tile._exception")
    assert issubclass(exceptions.CompilerExecutionError, exceptions.TileError)
    made = type("OfThatKind", (exceptions.TileError,), {"__init__": lambda self: None, "__str__": lambda self: "no"})()
    found = failures.classify(made, "k.py", loading=False, device="cuda:0")
    assert found.status == "COMPILE_ERROR"


def test_a_kind_of_an_interpreters_missing_feature_is_one_too() -> None:
    unsupported = type("Unsupported", (NotImplementedError,), {})
    for kind in (unsupported, type("UnsupportedLoad", (unsupported,), {})):
        found = failures.classify(kind("tl.spin"), "k.py", loading=False, device="cpu")
        assert found.status == "ENVIRONMENT_ERROR" and "tl.spin" in found.reason
