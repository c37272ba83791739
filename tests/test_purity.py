"""``--pure``: library calls that hide from a dispatch mode, or that are none of torch's; and kernels that do their own work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.harness.worker.purity import kind_of
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import Verification
from tilecast.sandbox.source import load_candidate

REFERENCE = """
import torch
import torch.nn as nn

WORKLOADS = {"small": {"m": 9, "k": 40, "n": 12}}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs(m=512, k=512, n=512):
    return [torch.randn(m, k), torch.randn(k, n)]


def get_init_inputs():
    return []
"""
COPY = """
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.utils._python_dispatch import _disable_current_modes


@triton.jit
def copy(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


@torch.library.custom_op("hides::view", mutates_args=())
def hidden(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a[:, :, None] * b).sum(1)


library = torch.library.Library("hides", "FRAGMENT")
library.define("mm(Tensor a, Tensor b) -> Tensor")
library.impl("mm", lambda a, b: torch.matmul(a, b), "CompositeExplicitAutograd")


class ModelNew(nn.Module):
    def forward(self, a, b):
        PRODUCT
        out = torch.empty_like(c)
        copy[(triton.cdiv(c.numel(), 64),)](c, out, c.numel(), BLOCK=64)
        return out
"""
OWN = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, K, N, am, ak, bk, bn, BLOCK: tl.constexpr):
    m, n, total = tl.program_id(0), tl.program_id(1), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(a + m * am + k * ak, mask=k < K, other=0.0)
        total += tl.sum(x * tl.load(b + k * bk + n * bn, mask=k < K, other=0.0))
    tl.store(c + m * N + n, total)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        product[c.shape](a, b, c, a.shape[1], c.shape[1], *a.stride(), *b.stride(), BLOCK=32)
        return c
"""
Verify = Callable[[str], Verification]


@pytest.fixture(scope="module")
def verify(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verify]:
    folder = tmp_path_factory.mktemp("pure")
    (folder / "reference.py").write_text(REFERENCE, encoding="utf-8")
    sandbox = LocalSandbox("cpu", state_dir=folder / "state")

    def verify_it(source: str) -> Verification:
        path: Path = folder / "candidate.py"
        path.write_text(source, encoding="utf-8")
        options = EvaluationOptions(pure=True)
        return sandbox.verify(load_problem(folder), load_candidate(path), options, lambda _: None)

    yield verify_it
    sandbox.close()


@pytest.mark.parametrize(
    ("work", "named"),
    [
        ("c = a @ b", "aten.mm is called"),
        ("with _disable_current_modes():\n            c = a @ b", "aten.mm (hidden) is called"),
        ("c = hidden(a, b)", "touched"),
        ("c = torch.ops.hides.mm(a, b)", "aten.matmul"),
        ("with torch._C._DisableTorchDispatch():\n            c = torch.matmul(a, b)", "aten.mm (hidden) is called"),
        ("c = torch.from_numpy(a.numpy() @ b.numpy())", "Tensor.numpy touched"),
        ("c = torch.from_numpy(np.matmul(np.asarray(a), np.from_dlpack(b)))", "Tensor.numpy touched"),
    ],
)
def test_a_library_that_works_for_a_kernel_that_copies(verify: Verify, work: str, named: str) -> None:
    """The launch removed changes the answer: that check alone takes the copy for the work."""
    answer = verify(COPY.replace("PRODUCT", work))
    assert answer.status.value == "REWARD_HACK", answer.reason
    assert named in answer.reason


def test_a_kernel_that_does_its_own_work_is_pure(verify: Verify) -> None:
    answer = verify(OWN)
    assert answer.status.value == "PASSED", answer.reason


WRAPPED = (
    OWN.replace(
        """class ModelNew(nn.Module):
    def forward(self, a, b):
""",
        """REGISTERED
def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
""",
    )
    .replace("        c = ", "    c = ")
    .replace("        product[", "    LAUNCHED[")
    .replace("        return c", "    return c")
)
WRAPPED += """

REST
class ModelNew(nn.Module):
    def forward(self, a, b):
        return multiply(a, b)
"""
LIBRARY = """
library = torch.library.Library("own", "DEF")
library.define("multiply(Tensor a, Tensor b) -> Tensor")
library.impl("multiply", multiply, "CPU")
library.impl("multiply", multiply, "CUDA")
multiply = torch.ops.own.multiply
"""


@pytest.mark.parametrize(
    ("registered", "launched", "rest"),
    [
        ('@torch.library.custom_op("own::multiply", mutates_args=())', "product", ""),
        ('@torch.library.triton_op("own::multiply", mutates_args=())', "torch.library.wrap_triton(product)", ""),
        ("", "product", LIBRARY),
    ],
)
def test_an_operator_that_wraps_ones_own_kernel_is_no_library(
    verify: Verify, registered: str, launched: str, rest: str
) -> None:
    source = WRAPPED.replace("REGISTERED", registered).replace("LAUNCHED", launched).replace("REST", rest)
    answer = verify(source)
    assert answer.status.value == "PASSED", answer.reason


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("view", "free"), ("clone", "moves"), ("mm", "heavy"), ("add", "computes")),
        *(
            ("theirs.view", "computes"),
            ("theirs.clone", "computes"),
            ("theirs.mm", "heavy"),
            ("theirs.add_", "computes"),
        ),
    ],
)
def test_the_names_of_operators_that_are_not_torchs_promise_nothing(name: str, kind: str) -> None:
    assert kind_of(name) == kind
