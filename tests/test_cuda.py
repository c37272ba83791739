"""On a real GPU: a right kernel is verified and timed, and what a bad one does to the device is over with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.schema import EvaluationStatus, Verification
from tilecast.sandbox.source import Candidate

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[1] / "examples"
REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.randn(1024, 4096)]


def get_init_inputs():
    return []
"""
HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
KERNEL = HEAD + (
    "@triton.jit\n"
    "def double(x, y, n, BLOCK: tl.constexpr):\n"
    "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
    "    value = tl.load(x + at, at < n)\n"
    "    tl.store(y + at, tl.where(value < 0, 0.0, value) * 2 + 1, at < n)\n\n\n"
    "class ModelNew(nn.Module):\n"
    "    def forward(self, x):\n"
    "        x = x.contiguous()\n"
    "        y = torch.empty_like(x)\n"
    "        double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)\n"
    "        return y\n"
)
FAR = KERNEL.replace("tl.store(y + at,", "tl.store(y + at + (1 << 42),")
HANGING = KERNEL.replace("    value =", "    while tl.load(x, volatile=True) < 1e30:\n        at += 0\n    value =")
PAST = (
    KERNEL.replace("(x, y, n,", "(x, y, spare, n,")
    # Of a value that is of no consequence the compiler removes the load, unless it is volatile.
    .replace("    value =", "    tl.load(spare + 1024, volatile=True)\n    value =")
    .replace("](x, y, x", "](x, y, spare[1], x")
    .replace("        y =", "        spare = [torch.empty(1024, device=x.device) for _ in range(3)]\n        y =")
)
EAGER = HEAD + "class ModelNew(nn.Module):\n    def forward(self, x):\n{body}\n"
ABORTING = EAGER.format(body="        import os\n        os.abort()")
HOGGING = EAGER.format(body="        return torch.empty(1 << 42, device=x.device)[: x.numel()].view_as(x)")
LATE = EAGER.format(
    body="        side, y = torch.cuda.Stream(), torch.empty_like(x)\n"
    "        with torch.cuda.stream(side):\n"
    "            torch.cuda._sleep(20_000_000)\n"
    "            y.copy_(torch.relu(x) * 2 + 1)\n"
    "        return y"
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSandbox]:
    """One judge for all: each test shows it is sound after what the one before did."""
    opened = LocalSandbox("cuda", state_dir=tmp_path_factory.mktemp("state"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A function of 16 MB."""
    folder = tmp_path_factory.mktemp("problem")
    (folder / "reference.py").write_text(REFERENCE)
    return load_problem(folder)


def verify(sandbox: LocalSandbox, problem: Problem, source: str, timeout_s: float = 60.0) -> Verification:
    """What the judge says of a text."""
    options = EvaluationOptions(timeout_s=timeout_s)
    return sandbox.verify(problem, Candidate(name="written", source=source), options, lambda text: None)


def sound(sandbox: LocalSandbox, problem: Problem) -> None:
    """A right kernel passes."""
    answer = verify(sandbox, problem, KERNEL)
    assert answer.status is EvaluationStatus.PASSED, answer.reason


def test_a_right_kernel_is_verified_and_timed_against_the_fastest_baseline(
    sandbox: LocalSandbox, problem: Problem
) -> None:
    options = EvaluationOptions(timeout_s=240.0)
    answer = sandbox.benchmark(problem, Candidate(name="written", source=KERNEL), options, lambda text: None)
    assert answer.status is EvaluationStatus.PASSED, answer.reason
    assert answer.latency_ms is not None and answer.speedup is not None
    # 16 MB read and 16 MB written: between the physical bound of the fastest card and a hundredth of it.
    assert 0.004 < answer.latency_ms.candidate < 0.4
    assert answer.speedup.low <= answer.speedup.ratio <= answer.speedup.high


def test_a_forward_that_draws_on_the_device_is_random_and_its_copy_passes(
    sandbox: LocalSandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dropout")
    drawing = REFERENCE.replace("torch.relu(x) * 2 + 1", "nn.functional.dropout(x, 0.5)")
    (folder / "reference.py").write_text(drawing)
    copy = drawing[: drawing.index("def get_inputs")].replace("class Model", "class ModelNew")
    options = EvaluationOptions(timeout_s=240.0, baseline="eager")
    candidate = Candidate(name="copy", source=copy)
    answer = sandbox.benchmark(load_problem(folder), candidate, options, lambda text: None)
    assert answer.status is EvaluationStatus.PASSED, answer.reason


@pytest.mark.parametrize(
    ("source", "status"),
    [
        pytest.param(FAR, EvaluationStatus.RUNTIME_ERROR, id="illegal access"),
        pytest.param(HANGING, EvaluationStatus.TIMEOUT, id="a kernel that does not end"),
        pytest.param(ABORTING, EvaluationStatus.RUNTIME_ERROR, id="abort"),
        pytest.param(HOGGING, EvaluationStatus.OUT_OF_MEMORY, id="more memory than there is"),
    ],
)
def test_a_fault_is_named_and_the_next_kernel_is_judged_soundly(
    sandbox: LocalSandbox, problem: Problem, source: str, status: EvaluationStatus
) -> None:
    answer = verify(sandbox, problem, source, timeout_s=12.0)
    assert answer.status is status, answer.reason
    sound(sandbox, problem)


def test_work_left_on_a_stream_that_nobody_joined_is_no_result(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = verify(sandbox, problem, LATE)
    assert answer.status in (EvaluationStatus.INCORRECT_NUMERICAL, EvaluationStatus.REWARD_HACK), answer.reason
    sound(sandbox, problem)


def test_a_finalist_is_confirmed_soaked_checked_and_profiled(sandbox: LocalSandbox, problem: Problem) -> None:
    options = EvaluationOptions(timeout_s=300.0, baseline="eager", max_seconds=5.0, confirm=True, profile=True)
    answer = sandbox.benchmark(problem, Candidate(name="written", source=KERNEL), options, lambda text: None)
    assert answer.status is EvaluationStatus.PASSED, answer.reason
    confirmed, profile = answer.details["confirmed"], answer.details["profile"]
    assert confirmed["soaked_calls"] == 100 and confirmed["samples"] >= 40
    if shutil.which("compute-sanitizer"):
        assert confirmed["sanitizer"] == {"ran": True, "errors": 0, "first": []}
    if shutil.which("ncu") and "ERR_NVGPUCTRPERM" not in profile.get("why", ""):
        assert profile["source"] == "nsight-compute" and "double" in profile["longest"], profile


def test_memory_errors_of_a_finalist_are_told(sandbox: LocalSandbox, problem: Problem) -> None:
    """It reads one element past the end of one buffer, which is the start of the next: no fault, and nothing is seen without
    room between them.
    """
    if not shutil.which("compute-sanitizer"):
        pytest.skip("compute-sanitizer is not installed")
    options = EvaluationOptions(timeout_s=300.0, baseline="eager", max_seconds=5.0, confirm=True)
    answer = sandbox.benchmark(problem, Candidate(name="past", source=PAST), options, lambda text: None)
    assert any("compute-sanitizer found" in note for note in answer.details.get("notes", [])), (
        answer.reason,
        answer.details.get("confirmed"),
    )


@pytest.mark.parametrize(
    ("file", "accepted"),
    [("kernel.py", True), ("cuda_inline.py", True), ("cuda_nvrtc.py", True), ("", False)],
)
def test_pure_lets_own_kernels_pass_and_no_library(sandbox: LocalSandbox, file: str, accepted: bool) -> None:
    folder = EXAMPLES / "softmax"
    if file == "cuda_nvrtc.py":
        pytest.importorskip("cuda.core")
    source = (folder / file).read_text() if file else EAGER.format(body="        return torch.softmax(x, -1)")
    options = EvaluationOptions(timeout_s=240.0, pure=True)
    answer = sandbox.verify(load_problem(folder), Candidate(name="k", source=source), options, lambda text: None)
    assert (answer.status is EvaluationStatus.PASSED) is accepted, answer.reason
    assert accepted or answer.status is EvaluationStatus.REWARD_HACK
