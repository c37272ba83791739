"""Several judges for one device: they verify side by side, time one after the other, and stop one by one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions, ParallelSandbox
from tilecast.sandbox.lanes import LanedSandbox
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.process import Interrupted
from tilecast.sandbox.schema import EvaluationStatus, Measurement
from tilecast.sandbox.source import Candidate

PROBLEM = """
import torch
import torch.nn as nn

DOMAIN = "declared"


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(300, 400)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp_min(0).mul_({factor})
"""
SLOW = KERNEL.replace("return", "import time; time.sleep(0.4); return")
OPTIONS = EvaluationOptions(baseline="eager", max_seconds=1.0)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    file = tmp_path / "reference.py"
    file.write_text(PROBLEM)
    return load_problem(file)


@pytest.fixture
def lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LanedSandbox]:
    # The device's lock is the whole machine's: other tests may hold it for long.
    monkeypatch.setattr("tilecast.sandbox.turns.lock_file", lambda device: tmp_path / "device.lock")
    made = LanedSandbox("cpu", 2, state_dir=tmp_path / "state")
    yield made
    made.close()


def candidate(name: str, source: str) -> Candidate:
    return Candidate(name=name, source=source)


def test_both_verify_at_once_and_only_one_times(lanes: LanedSandbox, problem: Problem) -> None:
    assert isinstance(lanes, ParallelSandbox) and lanes.slots == 2
    lanes.baselines(problem, OPTIONS, lambda _: None)
    spans: list[tuple[float, float]] = []

    def evaluate(number: int) -> Measurement:
        slot, timing = lanes.slot(), [0.0]

        def hear(text: str) -> None:
            if text.startswith("timing on"):
                timing[0] = time.monotonic()

        kernel = candidate(f"k{number}", KERNEL.format(factor=2) + f"# {number}\n")
        with slot.turn():
            found = slot.benchmark(problem, kernel, OPTIONS, hear)
        spans.append((timing[0], time.monotonic()))
        return found

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(evaluate, range(4)))
    assert [one.status for one in found] == [EvaluationStatus.PASSED] * 4
    assert all(one.speedup is not None for one in found)
    ordered = sorted(spans)
    assert all(one[1] <= other[0] + 0.05 for one, other in itertools.pairwise(ordered))
    assert sum(worker.done for worker in lanes.workers()) == 4
    assert all(worker.state == "idle" for worker in lanes.workers())


def test_a_wrong_kernel_in_one_lane_says_nothing_of_the_other(lanes: LanedSandbox, problem: Problem) -> None:
    def verify(factor: int) -> EvaluationStatus:
        slot = lanes.slot()
        with slot.turn():
            kernel = candidate(f"x{factor}", KERNEL.format(factor=factor))
            return slot.verify(problem, kernel, OPTIONS, lambda _: None).status

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(verify, (2, 3))) == [EvaluationStatus.PASSED, EvaluationStatus.INCORRECT_NUMERICAL]


def test_interrupting_one_lane_leaves_the_other_at_work(lanes: LanedSandbox, problem: Problem) -> None:
    begun = threading.Event()
    slow, plain = lanes.slot(), lanes.slot()

    def stopped() -> None:
        with slow.turn():
            slow.verify(problem, candidate("slow", SLOW.format(factor=2)), OPTIONS, lambda _: begun.set())

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stopped)
        assert begun.wait(60)
        with plain.turn():
            assert {worker.item for worker in lanes.workers()} == {"slow", ""}
            slow.interrupt()
            with pytest.raises(Interrupted):
                waiting.result(30)
            kernel = candidate("plain", KERNEL.format(factor=2))
            assert plain.verify(problem, kernel, OPTIONS, lambda _: None).status is EvaluationStatus.PASSED


def test_who_waits_for_a_lane_can_be_interrupted(lanes: LanedSandbox) -> None:
    holders, late = [lanes.slot(), lanes.slot()], lanes.slot()
    with holders[0].turn(), holders[1].turn():
        timer = threading.Timer(0.3, late.interrupt)
        timer.start()
        with pytest.raises(Interrupted), late.turn():
            pass
