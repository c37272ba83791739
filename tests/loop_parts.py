"""Parts of a loop for tests: a small recorded problem, a proposer that follows a script, a sandbox that can be told to fail.

As a program it is ``tilecast`` with the preflight of the small problem known beforehand, so that no torch is imported.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilecast.agent.assembly import Parts
from tilecast.agent.budget import Limits
from tilecast.agent.config import Settings, home
from tilecast.agent.devices import ChosenDevice
from tilecast.agent.request import OptimizeRequest
from tilecast.sandbox.base import EvaluationOptions, Preflight, ProgressSink
from tilecast.sandbox.problem import Problem, ProblemFacts, TensorFacts, WorkloadFacts, load_problem
from tilecast.sandbox.replay import ReplaySandbox
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate, load_candidate
from tilecast.tools.model.base import CallJournal, ChatAnswer, ChatRequest, Usage
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest
from tilecast.tools.propose.factory import ChosenProposer

if TYPE_CHECKING:
    from tilecast.agent.engine import Engine
    from tilecast.agent.record.store import RunLog
    from tilecast.sandbox.schema import OptimizeResult

TINY = Path(__file__).parent / "data" / "tiny" / "scale"
KERNEL = load_candidate(TINY / "kernel.py")
OTHER, WRONG, SLOW = (load_candidate(TINY / "candidates" / f"{name}.py") for name in ("other", "wrong", "slow"))
VECTOR = TensorFacts(name="x", shape=[1024], dtype="float32")
FACTS = ProblemFacts(
    workloads=[WorkloadFacts(name="full", inputs=[VECTOR], outputs=[VECTOR], min_bytes=8192, flops=0)],
    tolerance=None,
    domain="open",
)
KNOWN = Preflight(status=EvaluationStatus.PASSED, facts=FACTS)


def variant(block: int, warps: int, stages: int = 1) -> Candidate:
    """One point of the kernel's space; (256, 2, 1) is its fastest, 0.5 ms, and (512, 8) does not compile."""
    return KERNEL.with_config({"block": block, "warps": warps, "stages": stages})


def unrecorded(number: int) -> Candidate:
    """A candidate that nobody measured."""
    return Candidate(
        name=f"new{number}",
        source=f"import torch.nn as nn\nNUMBER = {number}\n\n\nclass ModelNew(nn.Module):\n    pass\n",
    )


@dataclass
class Scripted:
    """Proposes a list in order. A paid one asks through the journal, 100 tokens a question, after ``latency_s(index)``."""

    script: Sequence[Candidate | str]
    costs_money: bool = False
    latency_s: Callable[[int], float] = lambda index: 0.0
    asked: list[int] = field(default_factory=list)
    contexts: dict[int, ProposalContext] = field(default_factory=dict)
    name: str = "scripted"
    now_in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def propose(self, request: ProposalRequest, context: ProposalContext, journal: CallJournal) -> Proposal:
        """The entry at the request's index; past the end, exhausted."""
        with self.lock:
            self.asked.append(request.index)
            self.contexts[request.index] = context
            self.now_in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.now_in_flight)
        try:
            if self.costs_money:
                self._pay(request, journal)
        finally:
            with self.lock:
                self.now_in_flight -= 1
        if request.index >= len(self.script):
            return Proposal(candidate=None, reason="the script is at its end", exhausted=True, origin=self.name)
        entry = self.script[request.index]
        if isinstance(entry, str):
            return Proposal(candidate=None, reason=entry, origin=self.name)
        return Proposal(
            candidate=entry, origin=self.name, parent_sha256=request.parent.sha256 if request.parent else None
        )

    def _pay(self, request: ProposalRequest, journal: CallJournal) -> None:
        question = ChatRequest(
            key=f"propose:{request.index}", purpose="propose", messages=[{"role": "user", "content": "?"}]
        )
        if journal.answered(question.key) is not None:
            return
        journal.reserve(question, Usage(input_tokens=50, output_tokens=100, usd=0.01))
        time.sleep(self.latency_s(request.index))
        journal.settle(question, ChatAnswer(text="!", usage=Usage(input_tokens=50, output_tokens=50, usd=0.005)))


class WatchedReplay(ReplaySandbox):
    """Counts what is sent to it, and how many at once."""

    def __init__(self, folder: Path = TINY, hold_s: float = 0.0) -> None:
        super().__init__(folder, lambda problem, progress: KNOWN)
        self.sent: list[str] = []
        self.hold_s = hold_s
        self.at_once = 0
        self.most_at_once = 0
        self._inside = False

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """As recorded."""
        if self._inside:
            return super().verify(problem, candidate, options, progress)
        self.sent.append(candidate.sha256)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.hold_s)
        self.at_once -= 1
        return super().verify(problem, candidate, options, progress)

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """As recorded."""
        # The record is asked for the status once more inside; nothing is sent again.
        self._inside = True
        try:
            return super().benchmark(problem, candidate, options, progress)
        finally:
            self._inside = False


def make_request(start: Candidate | None = None, limits: Limits | None = None, **changes: Any) -> OptimizeRequest:
    """A request on the small problem; keyword arguments as in :class:`OptimizeRequest`, or of its settings."""
    of_settings = {k: changes.pop(k) for k in list(changes) if k in Settings.model_fields}
    settings = Settings(**{"forecaster": "none", "device": f"replay:{TINY}", **of_settings})
    request = OptimizeRequest(
        problem=load_problem(TINY), start=start, settings=settings, home=home(), limits=limits or Limits(evals=100)
    )
    return replace(request, **changes)


def making(
    proposer: Any, sandbox: Any = None, in_flight: int = 1
) -> Callable[[OptimizeRequest, Preflight | None], Parts]:
    """What an engine is made with instead of what the configuration names."""
    device = ChosenDevice(sandbox or WatchedReplay(), "device: the small record", f"replay:{TINY}")
    return lambda request, known: Parts(
        device, ChosenProposer(proposer, "proposals: a script"), "scripted", "triton", in_flight
    )


def main() -> None:
    """``tilecast`` with the preflight known; ``LOOP_PAUSE_S`` waits before each judgement, ``LOOP_HOLD_S`` in each evaluation."""
    from tilecast.agent import devices, nodes
    from tilecast.agent.cli.app import main as tilecast

    pause_s, hold_s = float(os.environ.get("LOOP_PAUSE_S", "0")), float(os.environ.get("LOOP_HOLD_S", "0"))
    decide, verify = nodes.decide, ReplaySandbox.verify

    def late(*args: Any) -> Any:
        time.sleep(pause_s)
        return decide(*args)

    def held(*args: Any) -> Any:
        time.sleep(hold_s)
        return verify(*args)

    devices._preflight_on_cpu = lambda known: lambda problem, progress: KNOWN
    nodes.decide, ReplaySandbox.verify = late, held  # type: ignore[method-assign]
    tilecast()


FASTEST = variant(256, 2)


def go(
    proposer: Scripted, sandbox: Any = None, in_flight: int = 1, **request: Any
) -> tuple[OptimizeResult, RunLog, Engine]:
    """A run to its end: the result, its log and the engine."""
    from tilecast.agent.engine import Engine, open_record

    engine = Engine(make_request(**request), make=making(proposer, sandbox, in_flight))
    result = engine.run()
    log = open_record(None, engine.request.home).open(result.run, lambda: 0.0)
    return result, log, engine


if __name__ == "__main__":
    main()
