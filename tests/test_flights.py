"""Several evaluations at once: a sandbox with places in this process, whose answers come when the test says."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from loop_parts import WRONG, Scripted, WatchedReplay, make_request, making, unrecorded, variant

from tilecast.agent.budget import Limits
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Finished, Fleet, Progress, Said
from tilecast.agent.record.store import RunLog
from tilecast.agent.turns import device_turn, sandbox_turn
from tilecast.sandbox.base import DeviceFacts, Incident, WorkerState
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.schema import OptimizeResult

POINTS = [variant(b, w, s) for b in (64, 128, 256, 512) for w in (1, 2, 4) for s in (1, 2, 3)]


class Places(WatchedReplay):
    """``slots`` evaluators; each takes ``wait_s(candidate)`` for a benchmark."""

    def __init__(self, slots: int, wait_s: Callable[[str], float] = lambda sha256: 0.01) -> None:
        super().__init__()
        self.slots, self._wait_s = slots, wait_s
        self.dashboard = "http://there:8265"
        self.held = self.most_held = 0
        self.benchmarked: list[str] = []
        self.threads: set[str] = set()
        self.fail_at: int | None = None
        self.lock = threading.Lock()
        self.full = threading.Event()
        self.news = [Incident(text="worker 3 was lost: its process ended", worker="worker 3", log=["last words"])]

    def slot(self) -> Places:
        return self

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self.lock:
            self.held += 1
            self.most_held = max(self.most_held, self.held)
            if self.held >= self.slots:
                self.full.set()
        try:
            yield
        finally:
            with self.lock:
                self.held -= 1

    def verify(self, *args: Any) -> Any:
        return super(WatchedReplay, self).verify(*args)

    def benchmark(self, problem: Any, candidate: Any, options: Any, progress: Any) -> Any:
        with self.lock:
            self.benchmarked.append(candidate.sha256)
            number = len(self.benchmarked)
        self.threads.add(threading.current_thread().name)
        progress("timing")
        time.sleep(self._wait_s(candidate.sha256))
        if number == self.fail_at:
            raise EnvironmentFailure("no evaluator of the Ray cluster is left")
        return super(WatchedReplay, self).benchmark(problem, candidate, options, progress)

    def workers(self) -> list[WorkerState]:
        return [WorkerState(name=f"worker {n}", device="NVIDIA H200", state="idle") for n in range(self.slots)]

    def incidents(self) -> list[Incident]:
        found, self.news = self.news, []
        return found


def go(proposer: Scripted, sandbox: Places, in_flight: int = 1, **request: Any) -> tuple[OptimizeResult, RunLog]:
    listeners = request.pop("listeners", [])
    engine = Engine(make_request(**request), listeners, make=making(proposer, sandbox, in_flight))
    result = engine.run()
    return result, open_record(None, engine.request.home).open(result.run, lambda: 0.0)


def best_of(result: OptimizeResult) -> Any:
    assert result.best is not None
    return result.best.source_sha256, result.best.speedup


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
def test_as_many_at_once_as_there_are_places_and_the_same_best(slots: int) -> None:
    chance = random.Random(slots)
    sandbox = Places(slots, lambda sha256: chance.uniform(0.005, 0.03) if sandbox.full.wait(20) else 0.0)
    result, log = go(Scripted(POINTS), sandbox)
    plain, _ = go(Scripted(POINTS), Places(1, lambda sha256: 0.0))
    assert best_of(result) == best_of(plain)
    assert sandbox.most_held == slots
    assert len(sandbox.benchmarked) == len(set(sandbox.benchmarked))
    done = [stored.event.index for stored in log.events(kind="evaluated")]  # type: ignore[union-attr]
    assert sorted(done) == list(range(len(POINTS)))
    assert result.ledger.evals.spent == len(POINTS)
    assert result.ledger.gpu_seconds.spent == pytest.approx(sum(c.charged_gpu_s for c in log.state.candidates.values()))


@pytest.mark.parametrize("seed", range(3))
def test_no_more_begin_than_the_budget_has(seed: int) -> None:
    chance = random.Random(seed)
    sandbox = Places(6, lambda sha256: chance.uniform(0, 0.03))
    proposer = Scripted(POINTS, True, lambda index: chance.uniform(0, 0.02))
    result, log = go(proposer, sandbox, in_flight=4, limits=Limits(evals=10), seed=seed)
    assert result.stopped_by == "evals" and result.ledger.evals.spent == 10
    assert len(log.events(kind="evaluation_started")) == 10
    # Backpressure: never more asked for than are evaluated, being evaluated, and in the pool.
    assert max(proposer.asked) < 10 + 4


def test_proposals_wait_while_every_place_is_taken() -> None:
    gate = threading.Event()
    sandbox = Places(2, lambda sha256: 0.01 * gate.wait(10))
    proposer = Scripted(POINTS)
    seen: list[int] = []

    def later() -> None:
        end = time.monotonic() + 8.0
        while len(proposer.asked) < 2 and time.monotonic() < end:  # a busy machine takes its time
            time.sleep(0.02)
        time.sleep(1.0)
        seen.append(len(proposer.asked))
        gate.set()

    threading.Thread(target=later).start()
    go(proposer, sandbox, limits=Limits(evals=8))
    assert seen == [2]


def test_what_is_in_the_air_lands_before_the_run_stops() -> None:
    sandbox = Places(4, lambda sha256: 0.05)
    result, log = go(Scripted(POINTS), sandbox, target_speedup=0.1)
    assert result.stopped_by == "target"
    assert len(log.events(kind="evaluation_started")) == len(log.events(kind="evaluated")) == len(sandbox.benchmarked)
    assert not log.state.arrived


def test_ctrl_c_lets_what_is_in_the_air_land() -> None:
    sandbox = Places(4, lambda sha256: 0.05)
    engine: Engine

    def listen(event: Progress) -> None:
        if isinstance(event, Finished):
            engine.interrupt()

    engine = Engine(make_request(), [listen], make=making(Scripted(POINTS), sandbox))
    result = engine.run()
    log = open_record(None, engine.request.home).open(result.run, lambda: 0.0)
    assert result.stopped_by == "interrupted"
    assert 1 <= len(log.events(kind="evaluation_started")) == len(log.events(kind="evaluated")) <= 8


def test_a_run_cut_off_with_several_in_the_air_takes_all_of_them_up_again() -> None:
    first = Places(4, lambda sha256: 0.3)
    first.fail_at = 6
    engine = Engine(make_request(), make=making(Scripted(POINTS), first))
    with pytest.raises(EnvironmentFailure, match="no evaluator"):
        engine.run()
    assert engine.run_id is not None
    record = open_record(None, engine.request.home)
    cut = record.open(engine.run_id, lambda: 0.0).state
    in_the_air = {c.index for c in cut.candidates.values() if c.in_flight_gpu_s is not None}
    assert len(in_the_air) > 1

    again = Engine(make_request(), resume=engine.run_id, make=making(Scripted(POINTS), Places(4)))
    result = again.run()
    log = record.open(result.run, lambda: 0.0)
    done = [stored.event.index for stored in log.events(kind="evaluated")]  # type: ignore[union-attr]
    assert sorted(done) == list(range(len(POINTS)))
    lost = [stored.event.index for stored in log.events(kind="evaluation_lost")]  # type: ignore[union-attr]
    assert set(lost) == in_the_air and len(lost) == len(in_the_air)
    assert result.ledger.evals.spent == len(POINTS) + len(lost)
    plain, _ = go(Scripted(POINTS), Places(1, lambda sha256: 0.0))
    assert best_of(result) == best_of(plain)


def test_listeners_hear_of_flights_in_the_loops_thread_and_of_the_evaluators() -> None:
    here, heard, threads = threading.current_thread().name, [], set()

    def listen(event: Progress) -> None:
        heard.append(event)
        threads.add(threading.current_thread().name)

    sandbox = Places(3)
    _, log = go(Scripted(POINTS[:6]), sandbox, listeners=[listen])
    assert threads == {here} and here not in sandbox.threads
    fleets = [event for event in heard if isinstance(event, Fleet)]
    assert len(fleets) == 1 and len(fleets[0].workers) == 3 and fleets[0].dashboard == "http://there:8265"
    assert any(isinstance(e, Said) and e.warning and "was lost" in e.text for e in heard)
    noted = log.events(kind="noted")
    assert noted[0].event.figures["log"] == ["last words"]  # type: ignore[union-attr]


class OnThisCpu(Places):
    @property
    def device(self) -> DeviceFacts:
        return DeviceFacts(kind="cpu", name="a CPU", uuid=f"test-{os.getpid()}")


@pytest.mark.timeout(20)
def test_a_run_does_not_hold_a_turn_that_its_own_evaluators_wait_for() -> None:
    sandbox = OnThisCpu(2)
    with sandbox_turn(sandbox), device_turn(sandbox.device):
        pass


def test_rejected_and_unrecorded_ones_land_too() -> None:
    result, log = go(Scripted([WRONG, unrecorded(1), *POINTS[:4]]), Places(3))
    assert result.candidates.rejected == 1 and result.candidates.not_recorded == 1
    assert result.ledger.evals.spent == 5 and not log.state.arrived
