"""Guards of the candidate's process: what replaces, hides or bypasses a library's functions is seen, what is usual is not."""

from __future__ import annotations

import gc
import math
import os
import random
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.testing._comparison as comparison
import torch.utils.benchmark

from tilecast.sandbox.harness.worker import guards
from tilecast.sandbox.harness.worker.bindings import Bindings
from tilecast.sandbox.harness.worker.calling import Caller
from tilecast.sandbox.harness.worker.guards import CallState, HostGenerators, false_clocks
from tilecast.sandbox.harness.worker.memory import Memory
from tilecast.sandbox.harness.worker.timing import TimingHandlers

Patch = Callable[[pytest.MonkeyPatch], None]


def _defaults(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(torch.testing.assert_close.__kwdefaults__, "rtol", 10.0)


def _table(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(comparison._DTYPE_PRECISIONS, torch.float32, (10.0, 10.0))


def _attribute(owner: object, name: str, value: object) -> Patch:
    return lambda patch: patch.setattr(owner, name, value, raising=False)


def _false(*_: object, **__: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("patch_it", "where"),
    [
        (_attribute(math, "isclose", _false), "math.isclose"),
        (_attribute(timeit, "default_timer", time.process_time), "timeit.default_timer"),
        (_attribute(np.testing, "assert_allclose", _false), "numpy.testing.assert_allclose"),
        (_attribute(torch.utils.benchmark.Timer, "timeit", _false), "Timer.timeit"),
        (_attribute(torch.nn.Linear, "forward", _false), "Linear.forward"),
        (_attribute(torch.nn, "Linear", torch.nn.Identity), "torch.nn.Linear"),
        (_attribute(torch._ops.OpOverload, "__call__", _false), "OpOverload.__call__"),
        (_attribute(torch.Tensor, "allclose", _false), "torch.Tensor.allclose"),
        (_attribute(torch.Tensor, "is_cuda", property(_false)), "torch.Tensor.is_cuda"),
        (_attribute(torch.cuda.Event, "__getattribute__", object.__getattribute__), "Event.__getattribute__"),
        (_attribute(torch.Tensor, "__torch_function__", classmethod(_false)), "Tensor.__torch_function__"),
        (_defaults, "assert_close"),
        (_table, "_DTYPE_PRECISIONS"),
    ],
)
def test_what_is_replaced_or_hidden_is_named(patch_it: Patch, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = Bindings()
    with monkeypatch.context() as patch:
        patch_it(patch)
        found = bindings.changes()
    assert found and all(item.rule == "patched" for item in found)
    assert any(where in item.detail for item in found)
    assert bindings.changes() == []


class _Answers(type(math)):  # type: ignore[misc]
    """A module that has an answer of its own for one name."""

    def __getattribute__(self, name: str) -> Any:
        return _false if name == "mse_loss" else super().__getattribute__(name)


class _Finder:
    """An import hook that finds nothing."""

    __module__ = "a_candidate"

    def find_spec(self, *_: object) -> None:
        return None


def test_modules_and_imports_that_answer_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = Bindings()
    monkeypatch.setattr(torch.nn.functional, "__class__", _Answers)
    found = bindings.changes()
    monkeypatch.undo()
    assert len(found) == 1 and "class of module torch.nn.functional" in found[0].detail
    monkeypatch.setattr(sys, "meta_path", [_Finder(), *sys.meta_path])
    assert ["imports are looked up" in item.detail for item in bindings.changes()] == [True]
    _Finder.__module__ = pytest.__name__  # as if a package of this machine had put it there
    assert bindings.changes() == []


@pytest.mark.parametrize("key", ["CPU", "AutogradCPU", "ADInplaceOrView", "BackendSelect", "AutocastCPU"])
def test_an_operator_of_torch_may_not_be_given_another_implementation_but_one_of_ones_own_may(key: str) -> None:
    bindings = Bindings()
    own = torch.library.Library("guarded_here", "DEF")
    own.define("twice(Tensor x) -> Tensor")
    own.impl("twice", lambda x: x + x, "CPU")
    assert bindings.changes() == []
    theirs = torch.library.Library("aten", "IMPL")
    theirs.impl("isclose", lambda a, b, *_, **__: torch.ones_like(a, dtype=torch.bool), key)
    try:
        assert [item.detail for item in bindings.changes()] == [
            f"operator aten/isclose/{key} of torch was given another implementation"
        ]
    finally:
        theirs._destroy()
    own._destroy()


def test_new_names_and_what_a_compiler_does_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo  # as the fork server does, before any snapshot

    bindings = Bindings()
    monkeypatch.setattr(torch, "_a_workspace", {}, raising=False)
    monkeypatch.setattr(torch.nn.Linear, "of_mine", 1, raising=False)
    torch.compile(lambda x: torch.softmax(x, -1).relu(), backend="aot_eager")(torch.randn(3, 4))
    assert bindings.changes() == []


CLOCK = """
import ctypes, sys, time
from tilecast.sandbox.harness.worker.guards import false_clocks

class Method(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]

class Function(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ssize_t), ("kind", ctypes.c_void_p), ("method", ctypes.POINTER(Method))]

def method(function):
    return Function.from_address(id(function)).method.contents

before = time.perf_counter
assert false_clocks() == []
method(time.perf_counter).code = method(time.process_time).code
assert time.perf_counter is before
print([item.detail for item in false_clocks()])
"""


def test_a_clock_with_other_code_beneath_is_held_against_the_systems() -> None:
    """The very same object: no comparison of names, code or identity shows it."""
    done = subprocess.run([sys.executable, "-c", CLOCK], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "time.perf_counter() says" in done.stdout and "monotonic" not in done.stdout


def _switch_interval() -> None:
    sys.setswitchinterval(2.0)


@pytest.fixture
def put_back() -> Iterator[None]:
    interval, processors = sys.getswitchinterval(), os.sched_getaffinity(0)
    yield
    sys.setswitchinterval(interval)
    os.sched_setaffinity(0, processors)
    gc.enable()
    torch.autograd.set_detect_anomaly(False)
    torch.backends.mkldnn.enabled = True
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.enable_flash_sdp(True)


def _no_mkldnn() -> None:
    torch.backends.mkldnn.enabled = False


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (gc.disable, "gc.isenabled"),
        (_switch_interval, "getswitchinterval"),
        (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), "processors"),
        (lambda: torch.autograd.set_detect_anomaly(True), "anomaly"),
        (_no_mkldnn, "mkldnn"),
        (lambda: torch.backends.cuda.enable_flash_sdp(False), "scaled dot product"),
    ],
)
def test_settings_of_the_process_are_compared(change: Callable[[], Any], named: str, put_back: None) -> None:
    if named == "processors" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor: it cannot be narrowed")
    before = CallState.take(False)
    assert before.changes(CallState.take(False)) == []
    change()
    found = before.changes(CallState.take(False))
    assert len(found) == 1 and named in found[0].detail


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: it cannot be narrowed")
def test_processors_that_the_judge_chose_for_timing_are_no_finding(put_back: None) -> None:
    """A candidate that is timed is pinned after its import, and looked at once more afterwards."""
    before, one, other = CallState.take(False), *sorted(os.sched_getaffinity(0))[:2]
    handlers = TimingHandlers(Caller(Memory(torch.device("cpu"))), torch.device("cpu"))
    handlers.pin({"cpus": [other]})
    assert os.sched_getaffinity(0) == {other}
    assert before.changes(CallState.take(False)) == []
    os.sched_setaffinity(0, {one})
    assert len(before.changes(CallState.take(False))) == 1


def test_only_settings_of_how_torch_computes_are_granted(put_back: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that make calls look faster, nor those that watch or interrupt others."""
    before, name = CallState.take(False), "torch.get_float32_matmul_precision()"
    monkeypatch.setattr(guards, "_granted", {})
    guards.grant({name: "'medium'", "gc.isenabled()": "False"})
    torch.set_float32_matmul_precision("medium")
    gc.disable()
    later = CallState.take(False)
    assert before.numerical_changes(later) == {name: "'medium'"}
    assert [item.detail for item in before.changes(later)] == ["gc.isenabled() was True, is now False"]
    torch.set_float32_matmul_precision("high")
    assert len(before.changes(CallState.take(False))) == 2


NEWER_SETTINGS = """
import torch
from tilecast.sandbox.harness.worker.guards import CallState
before = CallState.take(False)
torch.backends.cuda.matmul.fp32_precision = "tf32"
later = CallState.take(False)
print([item.detail for item in before.changes(later)])
print(CallState.take(False).changes(later), sorted(before.numerical_changes(later)))
"""


def test_newer_settings_of_precision_are_seen_though_torch_does_not_tell_the_older_ones_then() -> None:
    done = subprocess.run([sys.executable, "-c", NEWER_SETTINGS], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    told, rest = done.stdout.splitlines()
    assert "'cuda matmul': 'tf32'" in told
    assert rest == "[] ['torch.get_float32_matmul_precision()']"


@pytest.mark.parametrize("reseed", [lambda: random.seed(0), lambda: np.random.seed(7)])
def test_a_generator_set_to_the_same_state_again_is_seen(reseed: Callable[[], None]) -> None:
    generators = HostGenerators()
    assert not any(_one_call(generators, lambda: (random.random(), np.random.rand())) for _ in range(5))
    assert not _one_call(generators, reseed)
    assert [item.rule for item in _one_call(generators, reseed)] == ["rng"]


def _one_call(generators: HostGenerators, forward: Callable[[], Any]) -> list[Any]:
    before = generators.advance()
    forward()
    return generators.set_again(before)


def test_honest_clocks_are_honest() -> None:
    assert false_clocks() == []
