"""Interference on a CPU: read from the kernel's account, and granted in the interval."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tilecast.sandbox.harness.judge.timing.interference import Waiting, allowance, waited_ms
from tilecast.sandbox.harness.judge.timing.sampling import Sampler, SamplingPlan
from tilecast.sandbox.harness.judge.timing.simulation import SimulatedDevice
from tilecast.sandbox.harness.judge.timing.statistics import Design


def test_a_process_that_shares_its_cpu_waits() -> None:
    cpu = str(max(os.sched_getaffinity(0)))
    loop = f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    pair = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(2)]
    try:
        time.sleep(0.6)
        if waited_ms([os.getpid()]) == 0 and waited_ms([p.pid for p in pair]) == 0:
            pytest.skip("this kernel keeps no account of waiting")
        assert waited_ms([pair[0].pid]) + waited_ms([pair[1].pid]) > 50.0
    finally:
        for process in pair:
            process.kill()
            process.wait()


def test_a_process_that_is_gone_waits_for_nothing() -> None:
    assert waited_ms([2**22 + 1]) == 0.0


def test_allowance_grows_with_waiting_and_with_its_difference() -> None:
    quiet, busy = Waiting(0.1, 1000.0), Waiting(400.0, 1000.0)
    assert allowance(quiet, quiet) < 1e-4
    assert allowance(busy, busy) == pytest.approx(0.04)
    assert allowance(busy, quiet) > 0.2
    assert Waiting().share == 0.0


def test_interference_keeps_a_small_difference_from_being_claimed() -> None:
    class Busy(SimulatedDevice):
        def interference(self) -> float:
            return 0.05

    plan, design = SamplingPlan(max_seconds=3.0), Design()
    assert Sampler(Busy(baseline_ms=1.0, ratio=1.03, noise=0.003), plan, design).run().estimate.verdict == "undecided"
    assert Sampler(Busy(baseline_ms=1.0, ratio=1.3, noise=0.003), plan, design).run().estimate.verdict == "faster"
