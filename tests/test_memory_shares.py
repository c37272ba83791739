"""Memory of a device that several judges share: sizes take turns, pools are given back, want of memory is not the candidate's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tilecast.sandbox.harness.device_memory import keep_little
from tilecast.sandbox.harness.judge import room
from tilecast.sandbox.harness.judge.__main__ import Judge
from tilecast.sandbox.harness.judge.case import CaseBuilder
from tilecast.sandbox.harness.judge.failure import Failure, OutOfDeviceMemory, ProblemRefused, WorkerFailed
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.shared_memory import room_for
from tilecast.sandbox.harness.judge.timing import ceilings
from tilecast.sandbox.harness.judge.timing.bench import Benchmark, BenchOptions
from tilecast.sandbox.harness.judge.timing.place import Place
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import TensorSpec
from tilecast.sandbox.harness.worker import failures
from tilecast.sandbox.harness.worker.truth import TruthOptions, float64_truth

CPU = torch.device("cpu")
RELU = """
import torch
import torch.nn as nn


class {name}(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
PROBLEM = {"name": "relu", "source": RELU.format(name="Model"), "workloads": None, "tolerance": None, "domain": None}
PROBLEM["sha256"] = hashlib.sha256(str(PROBLEM["source"]).encode()).hexdigest()
MIB = 1 << 20


@pytest.fixture
def zygotes(tmp_path: Path) -> Iterator[Zygotes]:
    servers = Zygotes(Quiet(str(tmp_path / "quiet"), sharers=2))
    yield servers
    servers.close()


@pytest.fixture
def session(zygotes: Zygotes) -> Iterator[Session]:
    with Session.open(zygotes, SessionOptions(CPU)) as made:
        made.load(RELU.format(name="ModelNew"))
        made.construct("ModelNew", [])
        yield made


def answer(session: Session, rows: int) -> tuple[Tensor, Tensor]:
    """One call on fresh inputs, whose regions are given back; what is wanted and what came."""
    x = torch.randn(rows, 1024)
    prepared = session.prepare([x], [TensorSpec.dense((rows, 1024), torch.float32)])
    (got,) = session.call(prepared).outputs
    session.memory.discard(prepared)
    assert got is not None
    return torch.relu(x), got


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 8192, 8193, 123_456_789, 1 << 33])
def test_room_is_at_most_an_eighth_more_and_aligned(size: int) -> None:
    room = room_for(size)
    assert room % 512 == 0 and size <= room <= max(512, size * 1.125 + 512)
    assert room_for(room) == room


def test_sizes_a_little_apart_take_turns_in_one_place(session: Session) -> None:
    answer(session, 8000)
    held = session.memory.held_bytes
    for rows in range(7900, 8000, 9):
        wanted, got = answer(session, rows)
        assert torch.equal(wanted, got)
    assert session.memory.held_bytes == held


def test_trimming_frees_what_is_not_in_use_and_nothing_else(session: Session) -> None:
    x = torch.randn(9000, 1024)
    kept = session.prepare([x], [TensorSpec.dense((9000, 1024), torch.float32)])
    held = session.memory.held_bytes
    answer(session, 20000)
    assert session.memory.held_bytes > held + 100 * MIB
    session.memory.trim()
    assert session.memory.held_bytes == held
    (got,) = session.call(kept).outputs
    assert got is not None and torch.equal(got, torch.relu(x))
    wanted, got = answer(session, 20000)
    assert torch.equal(wanted, got)
    session.memory.discard(kept)
    session.memory.trim()
    assert session.memory.held_bytes == 0


def test_after_a_comparison_the_pools_are_given_back(
    zygotes: Zygotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ceilings.COPY_BYTES, "cpu", 8 << 20)
    monkeypatch.setitem(ceilings.PRODUCT_SIDE, "cpu", 128)
    reference = Reference.open(zygotes, PROBLEM, CPU)
    builder = CaseBuilder(reference)
    said: list[str] = []
    benchmark = Benchmark(Place(zygotes, CPU, tmp_path / "state"), PROBLEM, builder, builder.build("full"), said.append)
    options = BenchOptions(baseline="eager", max_seconds=1.0)
    with Session.open(zygotes, SessionOptions(CPU)) as candidate:
        candidate.load(RELU.format(name="ModelNew"))
        candidate.construct("ModelNew", benchmark.case.arguments, seed=0)
        assert benchmark.measure(candidate, options)["samples"]
        memory = benchmark.baselines.worker("eager").session.memory
        assert memory.held_bytes == 0
        assert benchmark.measure(candidate, options)["samples"]
        # Clocks that disagree once are no lie: the judge may have been held up. All is measured again.
        agreement, calls = benchmark._agreement, iter([True])

        def disagreeing(timed: object) -> object:
            if next(calls, False):
                raise WorkerFailed(Failure("REWARD_HACK", "clocks disagree: 1 ms and 2 ms", "clocks-disagree"))
            return agreement(timed)  # type: ignore[arg-type]

        monkeypatch.setattr(benchmark, "_agreement", disagreeing)
        again = benchmark.measure(candidate, options)
        assert any("clocks disagree" in note for note in again["details"]["notes"])
        assert any("once more" in text for text in said)
    benchmark.close()
    reference.close()


class Hungry(nn.Module):
    """Has memory for so many rows in float64 and no more, as a device that others use."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.failed = 0

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype is torch.float64 and x.shape[0] > self.rows:
            Hungry.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.softmax(x, -1)

    refused = 0


def test_a_float64_run_that_does_not_fit_is_made_in_parts() -> None:
    x, module = torch.randn(37, 64), Hungry(5)

    def forward(target: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
        return [target(*inputs)]

    native = forward(module, [x])
    Hungry.refused = 0
    truth = float64_truth(module, [x], native, forward, TruthOptions())
    assert truth.method == "promoted" and torch.equal(truth.outputs[0], torch.softmax(x.double(), -1))
    assert truth.chunks == 8 and Hungry.refused == 3
    float64_truth(module, [x], native, forward, TruthOptions())
    assert Hungry.refused == 3, "what an earlier run of that size needed is not remembered"
    assert float64_truth(Hungry(0), [x], native, forward, TruthOptions()).method == "native"


def shared_judge(sharers: int, tmp_path: Path) -> Judge:
    return Judge(CPU, None, False, Zygotes(Quiet(str(tmp_path / "quiet"), sharers=sharers)))


ARGS = {"candidate": {"name": "k", "sha256": "0", "source": ""}}


@pytest.mark.parametrize("trouble", [OutOfDeviceMemory("full"), torch.OutOfMemoryError("full"), "verdict", "refusal"])
def test_want_of_memory_beside_others_is_tried_once_more_with_everything_given_back(
    trouble: Exception | str, tmp_path: Path
) -> None:
    judge = shared_judge(2, tmp_path)
    judge.studies["kept"] = ProblemRefused("INVALID_REFERENCE", "kept")
    tries: list[int] = []

    def work() -> dict[str, str]:
        tries.append(len(judge.studies))
        if len(tries) == 1:
            if trouble == "refusal":
                raise ProblemRefused("OUT_OF_MEMORY", "no memory")
            if isinstance(trouble, Exception):
                raise trouble
            return {"status": "OUT_OF_MEMORY"}
        return {"status": "PASSED"}

    try:
        assert judge._with_room(work, lambda text: None) == {"status": "PASSED"}
    finally:
        judge.close()
    assert tries == [1, 0]


def test_who_runs_out_of_memory_twice_or_alone_is_to_blame(tmp_path: Path) -> None:
    for sharers, wanted in ((2, 2), (1, 1)):
        judge, tries = shared_judge(sharers, tmp_path), []

        def work(tries: list[int] = tries) -> dict[str, str]:
            tries.append(1)
            return {"status": "OUT_OF_MEMORY"}

        try:
            assert judge._with_room(work, lambda text: None)["status"] == "OUT_OF_MEMORY"
        finally:
            judge.close()
        assert len(tries) == wanted


@pytest.mark.parametrize("text", ["CUDA error: out of memory", "Triton Error [CUDA]: out of memory"])
def test_a_device_without_memory_is_no_error_of_the_kernel(text: str) -> None:
    found = failures.classify(RuntimeError(text), "k.py", loading=False, device="cuda:0")
    assert found.status == "OUT_OF_MEMORY"


def test_shares_of_all_judges_fit_beside_the_pools_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An 80 and a 140 GiB device: what judges may take, with a gibibyte a judge for contexts and three tenths for timing."""
    cuda = torch.device("cuda:0")
    for size in (80 << 30, 140 << 30):
        monkeypatch.setattr(room, "device_bytes", lambda device, size=size: size)
        for sharers in (2, 4, 8):
            kept = room.kept_bytes(cuda, sharers)
            assert kept is not None
            each = room.truth_bytes(cuda, sharers) + 2 * kept + room.ahead_bytes(cuda, sharers) + (1 << 30)
            assert sharers * each + 0.3 * size < size
    assert room.kept_bytes(cuda, 1) is None and room.truth_bytes(cuda, 1) == 16 << 30
    assert room.kept_bytes(CPU, 4) is None and room.ahead_bytes(CPU, 4) == room.ahead_bytes(CPU, 1)


def test_a_process_can_be_told_to_keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that torch has for it: where they are gone nothing happens, which this test notices."""
    device, asked = torch.device("cuda:0"), []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=100 << 30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: asked.append(share))
    real = torch._C._accelerator_setAllocatorSettings
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", lambda text: (asked.append(text), real(text)))
    keep_little(device, 5 << 30)
    assert asked == [1.0, "garbage_collection_threshold:0.0500"]
