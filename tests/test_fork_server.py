"""The judge's fork server under several requests at once, and what becomes of its workers when it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from tilecast.sandbox.harness.judge.failure import HelperLost, WorkerFailed
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.zygotes import Zygotes

OPTIONS = SessionOptions(torch.device("cpu"), timeout_s=30.0)
SLEEPS = "import time\ntime.sleep(20)\n"


@pytest.fixture
def zygotes() -> Iterator[Zygotes]:
    made = Zygotes()
    yield made
    made.close()


ASKING = """
import os
import traceback
import torch
import torch._dynamo  # needs more of a build for GPUs than can be feigned
import torch.accelerator

asked = []


def refuse(name):
    def called(*args, **named):
        asked.append(name + " by " + "".join(traceback.format_stack(limit=3)[:-1]))
        return False

    return called


os.environ["CUDA_HOME"] = "/usr/local/cuda"
torch.backends.cuda.is_built = torch.cuda._is_compiled = lambda: True
torch.version.cuda = "13.0"
for place, names in (
    (torch.cuda, ("is_available", "device_count", "init", "_lazy_init", "current_device", "get_device_properties")),
    (torch.accelerator, ("is_available", "device_count", "current_accelerator", "synchronize")),
    (torch._C, ("_accelerator_getAccelerator", "_accelerator_isAvailable")),
):
    for name in names:
        setattr(place, name, refuse(f"{place.__name__}.{name}"))

from tilecast.sandbox.harness import zygote

zygote._preload()
print(*asked, sep="\\n", end="")
"""
"""What the fork server imports, with functions that say when they are asked for a GPU; torch may have been built for a CPU."""


def test_the_fork_server_never_asks_for_a_gpu_or_its_workers_could_not_use_one() -> None:
    done = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_worker_is_made_also_where_its_request_comes_in_together_with_another(zygotes: Zygotes) -> None:
    first = Session.open(zygotes, OPTIONS)
    server = zygotes._server(False)
    made: list[Session] = []
    os.kill(server.process.pid, signal.SIGSTOP)  # both lines lie in the socket before it reads
    try:
        for _ in range(3):
            first._worker.locked()
        thread = threading.Thread(target=lambda: made.append(Session.open(zygotes, OPTIONS)))
        thread.start()
        time.sleep(0.3)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    thread.join(10.0)
    assert made and made[0].alive and first.findings() == made[0].findings() == []
    assert zygotes._server(False) is server, "it was thought dead and replaced"
    for session in (first, *made):
        session.close()


def test_a_worker_that_goes_with_its_fork_server_is_not_to_blame(zygotes: Zygotes) -> None:
    session = Session.open(zygotes, OPTIONS)
    server = zygotes._server(False)
    threading.Timer(0.5, server.stop).start()
    with pytest.raises(WorkerFailed) as failed:
        session.load(SLEEPS)
    assert isinstance(failed.value.of_a_helper(), HelperLost)
    with pytest.raises(WorkerFailed) as again:
        session.load(SLEEPS)
    assert isinstance(again.value.of_a_helper(), HelperLost)
    session._worker.locked()  # nobody hears it, and nobody needs to
    session.close()
    other = Session.open(zygotes, OPTIONS)
    assert other.alive
    other.close()


def test_a_fork_server_that_nobody_waits_for_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    zygotes = Zygotes()
    zygotes.start()
    process = zygotes._server(False).process
    zygotes._server(False).control.close()
    assert process.wait(120) == 0
    assert "Traceback" not in capfd.readouterr().err
    zygotes.close()
