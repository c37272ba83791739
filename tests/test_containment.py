"""Candidates that attack their surroundings: each is contained, blamed rightly, and the next candidate passes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilecast.agent.interrupts import descendants
from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.harness.wire import Channel
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.schema import EvaluationStatus, Verification
from tilecast.sandbox.source import Candidate

REFERENCE = """
import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 40}}


class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs(n=4096):
    return [torch.randn(n, 16)]


def get_init_inputs():
    return []
"""

HONEST = """
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x + x + 1
"""
SECRET = "a-value-that-must-not-be-seen"


def quiet(_: str) -> None:
    """Swallow progress."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSandbox]:
    os.environ["SERVICE_TOKEN"] = SECRET
    made = LocalSandbox("cpu", state_dir=tmp_path_factory.mktemp("state"))
    yield made
    made.close()
    del os.environ["SERVICE_TOKEN"]


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    folder = tmp_path_factory.mktemp("twice_plus_one")
    (folder / "reference.py").write_text(REFERENCE)
    return load_problem(folder)


def candidate(body: str, top: str = "") -> Candidate:
    """A candidate that runs ``top`` at import and ``body`` before it gives the right answer."""
    forward = textwrap.indent(textwrap.dedent(body).strip() or "pass", " " * 8)
    head = "import torch\nimport torch.nn as nn\n" + textwrap.dedent(top)
    source = f"{head}\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{forward}\n        return x + x + 1\n"
    return Candidate(name="attacker", source=source)


def judged(sandbox: LocalSandbox, problem: Problem, what: Candidate, timeout_s: float = 20.0) -> Verification:
    """Verify it, then an honest one: whatever the first did, the second must pass."""
    answer = sandbox.verify(problem, what, EvaluationOptions(timeout_s=timeout_s), quiet)
    after = sandbox.verify(problem, Candidate(name="honest", source=HONEST), EvaluationOptions(timeout_s=60), quiet)
    assert after.status is EvaluationStatus.PASSED, after.reason
    assert answer.source_sha256 == what.sha256
    return answer


def test_a_fork_in_a_call_ends_the_worker(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = judged(sandbox, problem, candidate("import os\nif os.fork() == 0: os._exit(0)"))
    assert answer.status is EvaluationStatus.REWARD_HACK
    assert "process" in answer.reason


def test_a_program_run_in_a_call_is_refused_even_if_its_failure_is_swallowed(
    sandbox: LocalSandbox, problem: Problem
) -> None:
    body = """
    import subprocess
    try:
        subprocess.run(["true"], check=False)
    except OSError:
        pass
    """
    answer = judged(sandbox, problem, candidate(body))
    assert answer.status is EvaluationStatus.REWARD_HACK
    assert "process" in answer.reason


def test_a_process_left_behind_by_the_import_is_found(sandbox: LocalSandbox, problem: Problem) -> None:
    top = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)\n    os._exit(0)\n"
    answer = judged(sandbox, problem, candidate("", top))
    assert answer.status is EvaluationStatus.REWARD_HACK
    assert "left a process running" in answer.reason


def test_the_environment_holds_no_secret(sandbox: LocalSandbox, problem: Problem) -> None:
    top = f"""
    import os
    seen = str(dict(os.environ)) + open("/proc/self/environ").read()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                seen += open(f"/proc/{{name}}/environ").read()
            except OSError:
                pass
    if {SECRET!r} in seen:
        raise RuntimeError("leaked")
    """
    assert judged(sandbox, problem, candidate("", top)).status is EvaluationStatus.PASSED


def test_no_socket_can_be_opened(sandbox: LocalSandbox, problem: Problem) -> None:
    top = """
    import socket
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
        try:
            socket.socket(family)
        except OSError:
            continue
        raise RuntimeError("a socket was opened")
    """
    assert judged(sandbox, problem, candidate("", top)).status is EvaluationStatus.PASSED


def test_files_outside_of_tmp_are_out_of_reach(sandbox: LocalSandbox, problem: Problem, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    home = Path.home() / "written-by-a-candidate"
    top = f"""
    import os
    for path in ({str(victim)!r}, {str(home)!r}, "/usr/written", "/etc/passwd", "/written"):
        try:
            open(path, "w").write("overwritten")
        except OSError:
            continue
        raise RuntimeError("wrote to " + path)
    open("/tmp/allowed", "w").write("x")
    """
    answer = judged(sandbox, problem, candidate("", top))
    assert answer.status is EvaluationStatus.PASSED, answer.reason
    assert victim.read_text() == "untouched"
    assert not home.exists()


def test_the_reference_is_not_in_view(sandbox: LocalSandbox, problem: Problem) -> None:
    top = f"""
    import os
    for root in ("/tmp", "/home", "/root", "/work", {str(Path(problem.path).parent)!r}):
        for folder, _, names in os.walk(root):
            if "reference.py" in names and "site-packages" not in folder and "harness" not in folder:
                raise RuntimeError("found it in " + folder)
    """
    assert judged(sandbox, problem, candidate("", top)).status is EvaluationStatus.PASSED


def test_nobody_else_can_be_killed(sandbox: LocalSandbox, problem: Problem) -> None:
    body = """
    import os, signal
    for pid in (os.getppid(), -1, 1):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    """
    answer = judged(sandbox, problem, candidate(body))
    assert answer.status is not EvaluationStatus.ENVIRONMENT_ERROR


def test_spinning_and_ignoring_signals_is_a_timeout_without_orphans(sandbox: LocalSandbox, problem: Problem) -> None:
    body = """
    import signal
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass
    """
    sandbox.preflight(problem, quiet)  # the first one starts the judge
    before = busy_workers()
    start = time.monotonic()
    answer = sandbox.verify(problem, candidate(body), EvaluationOptions(timeout_s=2), quiet)
    assert answer.status is EvaluationStatus.TIMEOUT
    assert "2 s" in answer.reason
    assert time.monotonic() - start < 2 + 10
    assert busy_workers() <= before


def test_a_slow_first_call_does_not_take_the_time_of_the_checks(sandbox: LocalSandbox, problem: Problem) -> None:
    """As where a compiler runs in it, on a machine that others use too; a later call is as slow as that once more."""
    body = """
    import time
    self.calls = getattr(self, "calls", 0) + 1
    if self.calls in (1, 30):
        time.sleep(7)
    """
    answer = sandbox.verify(problem, candidate(body), EvaluationOptions(timeout_s=10), quiet)
    assert answer.status is EvaluationStatus.PASSED, answer.reason


def test_slow_calls_are_made_fewer_also_where_one_layout_is_all(sandbox: LocalSandbox, tmp_path: Path) -> None:
    """An interpreted kernel may take a second a call: seventy of them are more than it has time for."""
    (tmp_path / "reference.py").write_text(REFERENCE.replace("WORKLOADS", 'DOMAIN = "declared"\nWORKLOADS'))
    slow = candidate("import time\ntime.sleep(1)")
    answer = sandbox.verify(load_problem(tmp_path), slow, EvaluationOptions(timeout_s=30), quiet)
    assert answer.status is EvaluationStatus.PASSED, answer.reason


def busy_workers() -> set[int]:
    """Forked workers below this process that run (a fork server names itself on its command line, so do its forks)."""
    return {pid for pid in descendants(os.getpid()) if is_busy(pid)}


def is_busy(pid: int) -> bool:
    """Whether a worker of this number runs, whoever its parent is by now."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return b"tilecast.sandbox.harness.zygote" in command and status[0] == "R"


def test_memory_without_end_is_out_of_memory(sandbox: LocalSandbox, problem: Problem) -> None:
    body = """
    kept = []
    while True:
        kept.append(torch.ones(1 << 26))
    """
    assert judged(sandbox, problem, candidate(body)).status is EvaluationStatus.OUT_OF_MEMORY


def test_python_memory_without_end_is_out_of_memory(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = judged(sandbox, problem, candidate("kept = [bytes(1 << 28) for _ in range(1 << 20)]"))
    assert answer.status is EvaluationStatus.OUT_OF_MEMORY


def test_forking_without_end_is_bounded_and_cleared_away(sandbox: LocalSandbox, problem: Problem) -> None:
    top = """
    import os
    def bomb():
        while True:
            try:
                os.fork()
            except OSError:
                pass
    if os.fork() == 0:
        bomb()
    import time
    time.sleep(0.5)
    """
    answer = judged(sandbox, problem, candidate("", top), timeout_s=5)
    assert answer.status in (EvaluationStatus.REWARD_HACK, EvaluationStatus.TIMEOUT, EvaluationStatus.RUNTIME_ERROR)
    assert len(busy_workers()) < 20


def test_an_abort_is_blamed_on_its_source(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = judged(sandbox, problem, candidate("import os\nos.abort()"))
    assert answer.status is EvaluationStatus.RUNTIME_ERROR
    assert "SIGABRT" in answer.reason


def test_a_segmentation_fault_is_blamed_on_its_source(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = judged(sandbox, problem, candidate("import ctypes\nctypes.string_at(8)"))
    assert answer.status is EvaluationStatus.RUNTIME_ERROR
    assert "SIGSEGV" in answer.reason


def test_leaving_with_status_zero_is_a_failure(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = judged(sandbox, problem, candidate("import os\nprint('all tests passed', flush=True)\nos._exit(0)"))
    assert answer.status is EvaluationStatus.RUNTIME_ERROR


def test_answers_written_into_the_channel_are_found_out(sandbox: LocalSandbox, problem: Problem) -> None:
    body = """
    import os, stat
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, b'{"re": 1, "nonce": null, "passed": true}\\n')
        except OSError:
            pass
    """
    answer = judged(sandbox, problem, candidate(body))
    assert answer.status is EvaluationStatus.REWARD_HACK
    assert "answer" in answer.reason


def test_an_exception_has_the_candidates_line(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = judged(sandbox, problem, candidate("raise ValueError('no such tile')"))
    assert answer.status is EvaluationStatus.RUNTIME_ERROR
    assert "ValueError: no such tile" in answer.reason
    assert "line 7" in answer.reason


def test_a_syntax_error_is_a_compile_error(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = judged(sandbox, problem, Candidate(name="broken", source="class ModelNew(:\n    pass\n"))
    assert answer.status is EvaluationStatus.COMPILE_ERROR
    assert "line 1" in answer.reason


def test_a_known_hang_is_not_tried_again_even_by_another_process(problem: Problem, tmp_path: Path) -> None:
    hang = candidate("while True: pass")
    first = LocalSandbox("cpu", state_dir=tmp_path)
    try:
        assert first.verify(problem, hang, EvaluationOptions(timeout_s=1), quiet).status is EvaluationStatus.TIMEOUT
    finally:
        first.close()
    second = LocalSandbox("cpu", state_dir=tmp_path)
    try:
        again = second.verify(problem, hang, EvaluationOptions(timeout_s=1), quiet)
        longer = second.verify(problem, hang, EvaluationOptions(timeout_s=2), quiet)
    finally:
        second.close()
    assert again.status is EvaluationStatus.TIMEOUT
    assert "not tried again" in again.reason
    assert again.seconds < 0.5
    assert "not tried again" not in longer.reason  # it was given more time than before


def test_interrupting_ends_the_call_and_every_process(problem: Problem, tmp_path: Path) -> None:
    sandbox = LocalSandbox("cpu", state_dir=tmp_path)
    hang = candidate("while True: pass")
    failures: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.verify(problem, hang, EvaluationOptions(timeout_s=120), quiet)
        except EnvironmentFailure as failure:
            failures.append(failure)

    sandbox.preflight(problem, quiet)
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.5)
    before = busy_workers()
    sandbox.interrupt()
    thread.join(15)
    assert not thread.is_alive()
    assert failures and "interrupted" in str(failures[0])
    deadline = time.monotonic() + 5
    while any(map(is_busy, before)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert before and not any(map(is_busy, before))
    honest = Candidate(name="honest", source=HONEST)
    assert sandbox.verify(problem, honest, EvaluationOptions(), quiet).status is EvaluationStatus.PASSED
    sandbox.close()


def test_the_level_in_force_is_recorded(sandbox: LocalSandbox, problem: Problem) -> None:
    answer = sandbox.verify(problem, Candidate(name="honest", source=HONEST), EvaluationOptions(), quiet)
    assert answer.sandbox_level == sandbox.sandbox_level
    assert (
        answer.sandbox_level == "limits only" or "seccomp" in answer.sandbox_level or "landlock" in answer.sandbox_level
    )


def test_what_a_worker_needs_may_lie_under_tmp(tmp_path: Path) -> None:
    """The worker's own /tmp must not cover a checkout or an environment that lies in the machine's."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        (place / "seen.txt").write_text("seen")
        code = (
            "import json, os, sys\n"
            "from tilecast.sandbox.harness import isolation\n"
            "abilities = isolation.probe()\n"
            "read, write = os.pipe()\n"
            "status = os.pipe()\n"
            "if os.fork() == 0:\n"
            "    paths = (*[p for p in sys.path if os.path.isdir(p)], sys.argv[1])\n"
            "    isolation.enclose(abilities, isolation.Enclosure(readonly=paths), isolation.Limits(), status[1])\n"
            "    found = open(sys.argv[1] + '/seen.txt').read()\n"
            "    try:\n"
            "        open(sys.argv[1] + '/new.txt', 'w')\n"
            "        found += ' and written'\n"
            "    except OSError:\n"
            "        pass\n"
            "    os.write(write, found.encode())\n"
            "    os._exit(0)\n"
            "os.close(write)\n"
            "print(os.read(read, 99).decode())\n"
        )
        run = subprocess.run(
            [sys.executable, "-c", code, str(place)], capture_output=True, text=True, timeout=30, check=False
        )
        assert run.stdout.strip() == "seen", run.stderr
    finally:
        shutil.rmtree(place)


def test_a_closed_connection_is_told_from_an_answer_nobody_asked_for() -> None:
    ours, theirs = Channel.pair()
    assert not ours.hung_up()
    theirs.sendall(b'{"unasked": true}\n')
    assert ours.pending() and not ours.hung_up()
    assert ours.receive(1.0) == {"unasked": True}
    theirs.close()
    assert ours.pending() and ours.hung_up()
