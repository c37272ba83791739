"""A judge whose host was killed ends at once, also in the middle of its work: the device is free for the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilecast.agent.interrupts import descendants

HOST = """
import sys, threading
from pathlib import Path
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.process import JudgeProcess

judge = JudgeProcess("cpu", Path(sys.argv[2]))
print(judge.request("hello", {}, lambda text: None)["pid"], flush=True)
problem = load_problem(sys.argv[1]).payload()
judge.request("preflight", {"problem": problem}, lambda text: None)
"""
SLOW_PROBLEM = """
import time
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    time.sleep(100)
    return [torch.rand(8)]


def get_init_inputs():
    return []
"""


@pytest.mark.timeout(300)
def test_the_judge_goes_with_its_host_in_the_middle_of_a_request(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(SLOW_PROBLEM)
    command = [sys.executable, "-c", HOST, str(tmp_path), str(tmp_path / "state")]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    judge = int(host.stdout.readline())
    time.sleep(3.0)
    below = [judge, *descendants(judge)]
    assert len(below) > 1, "the judge is at work in a worker"
    host.send_signal(signal.SIGKILL)
    host.wait()
    end = time.monotonic() + 20
    while (left := [pid for pid in below if _runs(pid)]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
