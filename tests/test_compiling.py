"""While a kernel is compiled others may have the device alone; before it is launched the device is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tilecast.sandbox.harness.judge.failure import WorkerFailed
from tilecast.sandbox.harness.judge.quiet import Quiet
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.worker_process import WorkerProcess
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import TensorSpec
from tilecast.sandbox.harness.wire import COMPILED, COMPILING, Message
from tilecast.sandbox.harness.worker import guards
from tilecast.sandbox.harness.worker.compiling import Announcer

CPU = torch.device("cpu")
COMPILES = """
import gc
import time
import torch
import torch.nn as nn
from tilecast.sandbox.harness.worker.compiling import Announcer


class ModelNew(nn.Module):
    def forward(self, x):
        announcer = next(item for item in gc.get_objects() if isinstance(item, Announcer))
        {how}
        return torch.relu(x)
"""
ONE_STEP = """with announcer.step():
            time.sleep(1.5)"""


@pytest.fixture
def lock(tmp_path: Path) -> str:
    return str(tmp_path / "quiet")


@pytest.fixture
def shared(lock: str) -> Iterator[Zygotes]:
    servers = Zygotes(Quiet(lock, sharers=2))
    yield servers
    servers.close()


@pytest.fixture
def alone() -> Iterator[Zygotes]:
    servers = Zygotes()
    yield servers
    servers.close()


def called(zygotes: Zygotes, how: str, timeout_s: float = 30.0) -> float:
    """Seconds that a call took whose answer is right."""
    with Session.open(zygotes, SessionOptions(CPU, timeout_s=timeout_s)) as session:
        session.load(COMPILES.format(how=how))
        session.construct("ModelNew", [])
        x = torch.randn(100)
        prepared = session.prepare([x], [TensorSpec.dense((100,), torch.float32)])
        session.call(prepared, watch=False) if how == "pass" else None
        session.extend(timeout_s)
        start = time.monotonic()
        (got,) = session.call(prepared, watch=False).outputs
        assert got is not None and torch.equal(got, torch.relu(x))
        return time.monotonic() - start


def test_who_times_need_not_wait_for_a_compiler_and_the_launch_waits_for_who_times(shared: Zygotes, lock: str) -> None:
    other, seen = Quiet(lock, sharers=2), {}
    begun = threading.Event()

    def time_something() -> None:
        begun.wait(20.0)
        asked = time.monotonic()
        with other.exclusive():
            seen["waited"] = time.monotonic() - asked
            time.sleep(2.5)
            seen["until"] = time.monotonic()

    thread = threading.Thread(target=time_something)
    thread.start()
    real = shared.quiet.let_go

    def let_go() -> None:
        real()
        begun.set()

    shared.quiet.let_go = let_go  # type: ignore[method-assign]
    # 1.5 s of compilation and 1 s of waiting: only the former is the candidate's.
    took_s = called(shared, ONE_STEP, timeout_s=2.2)
    ended = time.monotonic()
    thread.join()
    assert seen["waited"] < 1.0, "the one who times has waited for the compiler"
    assert ended >= seen["until"], "the candidate went on while another was timed"
    assert 2.2 < took_s < 6.0


def test_a_judge_that_is_alone_is_told_nothing(alone: Zygotes) -> None:
    assert 1.4 < called(alone, ONE_STEP) < 4.0


@pytest.mark.parametrize("how", ["announcer._conversation.say('compiling')", "announcer._conversation.say('x')"])
def test_what_nobody_asked_to_hear_is_a_forged_answer(alone: Zygotes, how: str) -> None:
    with pytest.raises(WorkerFailed) as failed:
        called(alone, how)
    assert failed.value.failure.status == "REWARD_HACK"


@pytest.mark.parametrize("how", ["announcer._conversation.say('compiling')", "announcer._conversation.say('compiled')"])
def test_half_an_announcement_changes_nothing(shared: Zygotes, lock: str, how: str) -> None:
    assert called(shared, how) < 4.0
    with Quiet(lock, sharers=2).exclusive():
        pass


@pytest.mark.parametrize(
    "how", ["[announcer._conversation.say('compiling') for _ in range(5000)]", "announcer._conversation.say(['done'])"]
)
def test_announcing_without_end_and_what_is_no_announcement_are_refused(shared: Zygotes, how: str) -> None:
    with pytest.raises(WorkerFailed) as failed:
        called(shared, how)
    assert failed.value.failure.status == "REWARD_HACK"


@pytest.mark.parametrize(
    "how",
    [
        "None",
        "announcer._conversation.channel._sock.send(b'{' + bytes([10]))",
        "announcer._conversation.channel._sock.close()",
    ],
)
def test_who_says_that_it_compiles_and_fails_is_ended_before_the_device_is_waited_for(
    shared: Zygotes, lock: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would run on beside the one who times, for as long as that takes."""
    other, until, seen = Quiet(lock, sharers=2), threading.Event(), dict[str, bool]()
    real = shared.quiet.let_go

    def let_go() -> None:
        real()
        threading.Thread(target=time_something).start()

    def time_something() -> None:
        with other.exclusive():
            seen["ended meanwhile"] = until.wait(8.0)

    def kill(self: WorkerProcess) -> None:
        until.set()
        end(self)

    end = WorkerProcess.kill
    monkeypatch.setattr(shared.quiet, "let_go", let_go)
    monkeypatch.setattr(WorkerProcess, "kill", kill)
    with pytest.raises(WorkerFailed):
        called(shared, f"(announcer._conversation.say('compiling'), {how}, time.sleep(60))", timeout_s=3.0)
    assert seen == {"ended meanwhile": True}


def test_waiting_for_others_makes_no_call_look_slow(shared: Zygotes, lock: str) -> None:
    """Slow calls are asked less: who announces compilers that there are not must not be asked less for it."""
    other = Quiet(lock, sharers=2)
    real = shared.quiet.let_go

    def let_go() -> None:
        real()
        thread = threading.Thread(target=time_something)
        thread.start()
        has.wait(10.0)

    def time_something() -> None:
        with other.exclusive():
            has.set()
            time.sleep(2.0)

    has = threading.Event()
    shared.quiet.let_go = let_go  # type: ignore[method-assign]
    with Session.open(shared, SessionOptions(CPU)) as session:
        session.load(COMPILES.format(how="with announcer.step(): pass"))
        session.construct("ModelNew", [])
        prepared = session.prepare([torch.randn(100)], [TensorSpec.dense((100,), torch.float32)])
        start = time.monotonic()
        result = session.call(prepared, watch=False)
        assert time.monotonic() - start > 1.5 and result.judge_ms < 1000


def test_in_exclusive_use_nothing_is_let_go(lock: str) -> None:
    mine, other = Quiet(lock, sharers=2), Quiet(lock, sharers=2)
    got = threading.Event()

    def want() -> None:
        with other.shared():
            got.set()

    with mine.exclusive():
        mine.let_go()
        thread = threading.Thread(target=want)
        thread.start()
        assert not got.wait(0.3)
        assert mine.take_back() == 0.0
    thread.join(5.0)
    assert got.is_set()


class Told:
    """A conversation that is written down."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def say(self, event: str) -> None:
        self.events.append(event)

    def hear(self) -> Message:
        self.events.append("go")
        return {"go": True}


class Compiler:
    """Stands for a library's compiler: fails on odd numbers, and compiles another within on 4."""

    def compile(self, number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return self.compile(2) + 2 if number == 4 else number


def test_compilers_are_announced_once_also_when_they_fail_or_call_themselves() -> None:
    told = Told()
    announcer = Announcer(told)
    kind = type("Kind", (Compiler,), {"compile": Compiler.compile})
    announcer._wrap(kind, "compile")
    announcer._wrap(kind, "gone_in_this_version")
    assert kind().compile(2) == 2 and told.events == []
    announcer.enabled = True
    assert kind().compile(4) == 4 and told.events == [COMPILING, COMPILED, "go"]
    with pytest.raises(ValueError, match="3"):
        kind().compile(3)
    assert told.events == [COMPILING, COMPILED, "go"] * 2
    thread = threading.Thread(target=kind().compile, args=(2,))
    thread.start()
    thread.join()
    assert len(told.events) == 6, "a thread that cannot answer the judge spoke"


def test_the_compilers_that_are_installed_have_the_names_that_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    jit = pytest.importorskip("triton.runtime.jit")
    assert callable(jit.JITFunction._do_compile)
    monkeypatch.setattr(jit.JITFunction, "_do_compile", lambda self, number: number + 1)
    told = Told()
    announcer = Announcer(told)
    announcer.install("import triton")
    announcer.enabled = True
    assert jit.JITFunction._do_compile(None, 1) == 2 and told.events == [COMPILING, COMPILED, "go"]


def test_cutile_has_the_function_that_is_wrapped() -> None:
    assert callable(pytest.importorskip("cuda.tile._compile").compile_tile)


def test_torchs_own_assembler_is_no_change_of_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile` names it in the environment when it first compiles; another one is a change."""
    own = str(Path(torch.__file__).parent / "bin" / "ptxas")
    for value, wanted in ((own, []), ("/tmp/ptxas", ["environment"]), (own + "/../../../ptxas", ["environment"])):
        monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
        before = guards.CallState.take(False)
        monkeypatch.setenv("TRITON_PTXAS_PATH", value)
        assert [finding.rule for finding in before.changes(guards.CallState.take(False))] == wanted
