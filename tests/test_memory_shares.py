"""Memory of a device that several judges share: sizes take turns, pools are given back, want of memory is not the candidate's."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from process_parts import kill_all
from torch import Tensor, nn

from tilecast.sandbox.harness import arena
from tilecast.sandbox.harness.device_memory import give_back
from tilecast.sandbox.harness.judge import hogging, idle, room
from tilecast.sandbox.harness.judge import reference as reference_module
from tilecast.sandbox.harness.judge.__main__ import Judge
from tilecast.sandbox.harness.judge.another_try import with_another_try
from tilecast.sandbox.harness.judge.case import CaseBuilder
from tilecast.sandbox.harness.judge.failure import (
    Failure,
    HelperLost,
    OutOfDeviceMemory,
    ProblemRefused,
    Rejected,
    WorkerFailed,
)
from tilecast.sandbox.harness.judge.landing import Landing
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.shared_memory import POISON, SharedMemory, room_for
from tilecast.sandbox.harness.judge.study import Study
from tilecast.sandbox.harness.judge.timing import ceilings
from tilecast.sandbox.harness.judge.timing.bench import Benchmark, BenchOptions
from tilecast.sandbox.harness.judge.timing.place import Place
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import TensorSpec
from tilecast.sandbox.harness.wire import Channel
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


def test_behind_the_end_nothing_is_left_of_what_was_longer() -> None:
    made: list[arena.Arena] = []
    memory = SharedMemory(CPU, made.append, lambda numbers: None)
    longer = memory.allocate(8190)
    memory.memory(longer).fill_(1)
    memory.release([longer])
    shorter = memory.allocate(8000)
    assert shorter.at == longer.at and room_for(8000) == room_for(8190)
    assert bool((made[0].memory(shorter.at + 8000, 190) == POISON).all())


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


def test_memory_that_a_worker_could_not_take_is_not_counted(session: Session) -> None:
    """Else all that is made later would have another number in the worker."""
    real, fails = session.memory.announce, [True]

    def announce(new: arena.Arena) -> None:
        if fails.pop():
            raise WorkerFailed(Failure("OUT_OF_MEMORY", "full"))
        fails.append(False)
        real(new)

    held = session.memory.held_bytes
    session.memory.announce = announce
    with pytest.raises(WorkerFailed):
        session.memory.allocate(100 * MIB)
    assert session.memory.held_bytes == held
    fails.append(False)
    wanted, got = answer(session, 20000)
    assert torch.equal(wanted, got)


def test_memory_shared_on_a_gpu_is_overwritten_before_a_worker_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's own freed memory comes back as it was, expected outputs and all."""
    calls: list[tuple[str, list[int]]] = []

    def call(name: str, *arguments: object) -> None:
        if name == "cuMemAlloc_v2":
            arguments[0]._obj.value = 4096  # type: ignore[attr-defined]
            return
        calls.append((name, [item.value for item in arguments]))  # type: ignore[attr-defined]

    monkeypatch.setattr(arena, "_make_context", lambda device: None)
    monkeypatch.setattr(arena, "_driver_call", call)
    arena.create(1000, torch.device("cuda:0"))
    assert calls == [("cuMemsetD8_v2", [4096, 0xFF, 1024]), ("cuCtxSynchronize", [])]


def test_results_that_cannot_be_taken_leave_no_memory_in_use() -> None:
    memory = SharedMemory(CPU, lambda new: None, lambda numbers: None)
    session = Failing(0, alive=False)
    session.memory, session.request = memory, lambda message, doing: session()  # type: ignore[attr-defined]
    reference = patient(session, 1, True)
    reference._landing = Landing(memory)
    spec = TensorSpec.dense((10,), torch.float32).to_message()
    with pytest.raises(HelperLost):
        reference._take({"tensors": [spec]})
    memory.trim()
    assert memory.held_bytes == 0


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


def tried(outcomes: list[Exception | str], sharers: int) -> tuple[list[str], str]:
    """What was done, and how it ended, with these outcomes of the tries; the last one stands for all that follow."""
    log: list[str] = []

    def work() -> dict[str, str]:
        log.append("work")
        outcome = outcomes[min(log.count("work"), len(outcomes)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return {"status": outcome}

    try:
        end = with_another_try(work, CPU, sharers, lambda: log.append("room"), lambda text: None)["status"]
    except Exception as error:
        end = type(error).__name__
    return log, end


FULL = [
    OutOfDeviceMemory("full"),
    torch.OutOfMemoryError("full"),
    "OUT_OF_MEMORY",
    ProblemRefused("OUT_OF_MEMORY", "no memory"),
]
NAMES = ["OutOfDeviceMemory", "OutOfMemoryError", "OUT_OF_MEMORY", "ProblemRefused"]


@pytest.mark.parametrize(("trouble", "name"), list(zip(FULL, NAMES, strict=True)))
def test_want_of_memory_beside_others_is_tried_again_with_everything_given_back(
    trouble: Exception | str, name: str
) -> None:
    assert tried([trouble, trouble, "PASSED"], 2) == (["work", "room", "work", "room", "work"], "PASSED")
    assert tried([trouble], 2) == (["work", "room", "work", "room", "work"], name)
    assert tried([trouble, "PASSED"], 1) == (["work"], name)


def test_a_lost_worker_of_the_judges_own_is_replaced_once_also_where_nobody_shares() -> None:
    assert tried([HelperLost("gone"), "PASSED"], 1) == (["work", "room", "work"], "PASSED")
    assert tried([HelperLost("gone")], 1) == (["work", "room", "work"], "HelperLost")


def test_the_seconds_of_all_tries_are_charged() -> None:
    answers = [{"status": "OUT_OF_MEMORY", "seconds": 5.0}, {"status": "PASSED", "seconds": 2.0}]
    assert with_another_try(lambda: answers.pop(0), CPU, 2, lambda: None, lambda text: None)["seconds"] == 7.0


def test_what_went_wrong_before_is_among_the_checks() -> None:
    outcomes: list[Any] = [OutOfDeviceMemory("704 MiB are needed"), {"status": "PASSED", "checks": [{"name": "calls"}]}]

    def work() -> dict[str, Any]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return dict(outcome)

    said: list[str] = []
    checks = with_another_try(work, CPU, 2, lambda: None, said.append)["checks"]
    assert [check["name"] for check in checks] == ["calls", "another try"] and checks[1]["passed"] is True
    assert "704 MiB are needed" in checks[1]["detail"] and "704 MiB are needed" in said[0]


@pytest.mark.parametrize("other", ["PASSED", "INCORRECT_NUMERICAL", ProblemRefused("INVALID_REFERENCE", "bad")])
def test_nothing_else_is_tried_again(other: Exception | str) -> None:
    assert tried([other], 4)[0] == ["work"]


@pytest.mark.parametrize("text", ["CUDA error: out of memory", "Triton Error [CUDA]: out of memory"])
def test_a_device_without_memory_is_no_error_of_the_kernel(text: str) -> None:
    found = failures.classify(RuntimeError(text), "k.py", loading=False, device="cuda:0")
    assert found.status == "OUT_OF_MEMORY"


def test_little_is_kept_and_large_float64_runs_are_made_by_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda:0")
    for size in (80 << 30, 140 << 30):
        monkeypatch.setattr(room, "device_bytes", lambda device, size=size: size)
        for sharers in (2, 4, 8):
            kept = room.kept_bytes(cuda, sharers)
            assert kept is not None
            # Each judge and its reference's worker: what torch keeps, questions drawn ahead, contexts; then one float64 run in
            # parts, and one that times.
            each = 3 * kept + room.ahead_bytes(cuda, sharers) + (3 << 30)
            bursts = sharers * room.burst_bytes(cuda, sharers, size)
            assert sharers * each + room.truth_bytes(cuda, sharers) + 0.3 * size + bursts < size
            assert room.is_heavy(cuda, sharers, 2 << 30) and not room.is_heavy(cuda, sharers, 10 << 20)
            assert room.burst_bytes(cuda, sharers, 1 << 30) == 1 << 29, "more than half of what is free"
    assert room.kept_bytes(cuda, 1) is None and room.truth_bytes(cuda, 1) == 16 << 30
    assert room.burst_bytes(cuda, 1, 100 << 30) == room.burst_bytes(CPU, 4, 100 << 30) == 50 << 30
    assert not room.is_heavy(cuda, 1, 2 << 30) and not room.is_heavy(CPU, 4, 2 << 30)
    assert room.kept_bytes(CPU, 4) is None and room.ahead_bytes(CPU, 4) == room.ahead_bytes(CPU, 1)


def test_what_torch_keeps_is_given_back_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"reserved_bytes": {"all": {"current": 900}}, "allocated_bytes": {"all": {"current": 300}}}
    emptied: list[int] = []
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", lambda index: table, raising=False)
    free = [50]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 100))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    assert not give_back(torch.device("cuda:0"), 600) and emptied == []
    assert give_back(torch.device("cuda:0"), 599) and emptied == [1]
    free[0] = 51
    assert not give_back(torch.device("cuda:0"), 0) and emptied == [1], (
        "over half of the device is free: nobody needs it"
    )
    assert give_back(torch.device("cuda:0"), 0, idle=True) and emptied == [1, 1], "an idle process does not look again"


def test_an_idle_judge_gives_memory_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "IDLE_S", 0.05)
    ours, socket = Channel.pair()
    theirs = Channel(socket)
    rested: list[float] = []
    sender = threading.Timer(0.4, lambda: theirs.send({"id": 1}))
    sender.start()
    assert idle.next_request(ours, lambda: rested.append(1.0)) == {"id": 1} and rested == [1.0]
    theirs.send({"id": 2})
    assert idle.next_request(ours, lambda: rested.append(2.0)) == {"id": 2} and rested == [1.0], "it was at work"

    asked: list[int] = []
    given: list[tuple[int, bool]] = []
    monkeypatch.setattr(idle, "kept_bytes", lambda device, sharers: 7 if sharers > 1 else None)
    monkeypatch.setattr(idle, "give_back", lambda device, over, idle: given.append((over, idle)))
    reference: Any = SimpleNamespace(rest=asked.append)
    idle.rest(torch.device("cuda:0"), Quiet(None, 1), [reference])
    assert (asked, given) == ([], []), "nobody shares the device"
    idle.rest(torch.device("cuda:0"), Quiet(None, 2), [reference])
    assert (asked, given) == ([7], [(7, True)])

    def broken(device: torch.device, over: int, *, idle: bool) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(idle, "give_back", broken)
    idle.rest(torch.device("cuda:0"), Quiet(None, 2), [reference])
    assert asked == [7, 7], "the next request is told, and no judge dies idle"


def test_heavy_work_is_done_by_one_judge_at_a_time_and_may_be_nested(tmp_path: Path) -> None:
    mine, other = Quiet(str(tmp_path / "q"), sharers=2), Quiet(str(tmp_path / "q"), sharers=2)
    entered = threading.Event()

    def want() -> None:
        with other.shared(), other.heavy():
            entered.set()

    thread = threading.Thread(target=want)
    with mine.shared(), mine.heavy(), mine.heavy():
        thread.start()
        assert not entered.wait(0.3)
    assert entered.wait(5.0)
    thread.join()
    with Quiet(str(tmp_path / "q")).heavy(), other.heavy():  # the first is alone: nothing is waited for
        pass


class Failing:
    """A session of a helper: so many requests fail for want of memory, or it is gone."""

    def __init__(self, short: int, alive: bool = True) -> None:
        self.short, self.alive, self.asked = short, alive, 0

    def __call__(self) -> str:
        self.asked += 1
        if not self.alive:
            raise WorkerFailed(Failure("RUNTIME_ERROR", "vanished"), "the reference")
        if self.asked <= self.short:
            raise WorkerFailed(Failure("OUT_OF_MEMORY", "full"), "the reference")
        return "done"


def patient(session: Failing, sharers: int, proven: bool) -> Reference:
    made = Reference.__new__(Reference)
    made.session, made.proven, made._sharers, made._device = session, proven, sharers, CPU  # type: ignore[assignment]
    return made


def test_the_reference_waits_for_memory_and_its_end_is_no_candidates_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_module, "_POLL_S", 0.01)
    assert patient(Failing(3), 2, True)._patiently(Failing(3), "x") == "done"
    monkeypatch.setattr(reference_module, "MEMORY_PATIENCE_S", 0.05)
    for sharers in (1, 2):
        session = Failing(10**6)
        with pytest.raises(OutOfDeviceMemory, match="the worker of the reference failed"):
            patient(session, sharers, True)._patiently(session, "x")
        assert (session.asked > 2) == (sharers == 2)
    gone = Failing(0, alive=False)
    with pytest.raises(HelperLost, match="vanished"):
        patient(gone, 1, True)._patiently(gone, "x")
    with pytest.raises(ProblemRefused) as refused:  # while it is studied, that is the problem's own doing
        patient(gone, 1, False)._patiently(gone, "x")
    assert refused.value.status == "INVALID_REFERENCE"


class Holding:
    """A candidate's session whose worker holds so many bytes of a device that has 100 free ones without it."""

    options = SimpleNamespace(device=torch.device("cuda:0"))

    def __init__(self, held: int) -> None:
        self.held, self.looks, self.killed = held, 0, False

    def free(self, device: torch.device) -> int:
        self.looks += self.killed
        return 100 if self.looks > 2 else 100 - self.held  # the driver has cleared up only some time after the kill

    def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize(
    ("held", "blamed"), [(100, True), (30, True), (20, False), (0, False)], ids=["all", "much", "some", "nothing"]
)
def test_who_holds_the_device_is_to_blame_if_he_cannot_be_checked(
    held: int, blamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Holding(held)
    monkeypatch.setattr(hogging, "device_bytes", lambda device: 100)
    monkeypatch.setattr(hogging, "free_bytes", session.free)
    monkeypatch.setattr(hogging, "_FREED_S", 0.5)
    if not blamed:
        hogging.refuse_hog(session, "full")  # type: ignore[arg-type]
        assert session.killed
        return
    with pytest.raises(Rejected, match="'full': held") as refused:
        hogging.refuse_hog(session, "full")  # type: ignore[arg-type]
    assert refused.value.status == "OUT_OF_MEMORY" and refused.value.workload == "full"


def test_only_want_of_the_judges_own_memory_asks_who_holds_it() -> None:
    full, gone = Failure("OUT_OF_MEMORY", "full"), Failure("RUNTIME_ERROR", "vanished")
    asked = [OutOfDeviceMemory("full"), torch.OutOfMemoryError("full"), WorkerFailed(full, "the reference")]
    others = [WorkerFailed(full), WorkerFailed(gone, "the reference"), ValueError("no")]
    assert all(map(hogging.is_want_of_memory, asked)) and not any(map(hogging.is_want_of_memory, others))


def test_a_reference_that_dies_while_a_candidate_is_checked_costs_the_candidate_nothing(tmp_path: Path) -> None:
    """Killed from outside after the study: the candidate's verdict is its own, found with a new reference."""
    judge = Judge(CPU, str(tmp_path), False)
    source = RELU.format(name="ModelNew")
    args = {
        "problem": PROBLEM,
        "candidate": {"name": "k", "sha256": hashlib.sha256(source.encode()).hexdigest(), "source": source},
        "options": {"timeout_s": 60.0},
    }
    said: list[str] = []
    try:
        assert judge.answer({"op": "verify", "args": args}, said.append)["result"]["status"] == "PASSED"
        (study,) = judge.studies.values()
        assert isinstance(study, Study)
        study.store.kept.clear()  # with enough questions kept, nobody would ask it again
        kill_all(study.reference.session.processes())
        answer = judge.answer({"op": "verify", "args": args}, said.append)
        assert answer["result"]["status"] == "PASSED", answer
        assert any("the worker of the reference failed" in text for text in said), said
    finally:
        judge.close()
