"""What proposers and forecasters are told of a run: candidates tried and pending, as they stood at a place of the log.

Told again after a resume, a question is word for word the one that was asked before, so that its answer is found.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from tilecast.agent.record.fold import CandidateState
from tilecast.agent.record.store import RunLog
from tilecast.agent.record.texts import Texts
from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.hardware import find_hardware, require_hardware
from tilecast.sandbox.problem import Problem, ProblemFacts
from tilecast.sandbox.roofline import floor_of
from tilecast.sandbox.source import Candidate
from tilecast.tools.forecast.base import EvidenceProvider, ForecastContext
from tilecast.tools.propose.base import ProposalContext, Tried
from tilecast.tools.propose.history import History

UNKNOWN_FACTS = ProblemFacts(workloads=[], tolerance=None, domain="open")
"""Of a problem that could not be looked at on this machine."""


@dataclass(frozen=True)
class Told:
    """What the user says of the search: the language to write in, and the GPU to forecast for where it is not here."""

    language: str
    target: str | None = None
    workload: str = "full"


class Knowledge:
    """The fixed part (problem, device, start kernel) and the growing list of candidates tried, in the order judged."""

    def __init__(self, log: RunLog, problem: Problem, device: DeviceFacts, told: Told) -> None:
        self._log, self._problem, self._language = log, problem, told.language
        self._workload = told.workload
        self._told = told
        self.settle_device(device)
        self._tried: list[int] = []
        self._seqs: list[int] = []
        self._entry = self._entry_at
        self._source = Texts(log.record.text)
        for index in log.state.judged:
            self.judged(log.state.candidates[index])

    def settle_device(self, device: DeviceFacts) -> None:
        """The device that measures, which may be known only once it has answered."""
        self._device, target = device, self._told.target
        named = find_hardware(device.name) if target is None else require_hardware(target)
        # A GPU that is named says nothing of times that are taken on a CPU.
        self.hardware = None if device.kind == "cpu" else named

    def candidate(self, state: CandidateState) -> Candidate | None:
        """The text of a proposal."""
        if state.proposed is None or state.proposed.source_sha256 is None:
            return None
        return Candidate(name=state.proposed.name, source=self._source(state.proposed.source_sha256))

    def by_sha256(self, sha256: str | None) -> Candidate | None:
        """A candidate of this run by the hash of its source, under its own name."""
        if sha256 is None:
            return None
        index = self._log.state.by_sha256.get(sha256)
        if index is not None:
            return self.candidate(self._log.state.candidates[index])
        return Candidate(name="start", source=self._source(sha256))

    @property
    def start(self) -> Candidate | None:
        """The kernel that the user gave."""
        sha256 = self._log.header.start_sha256
        return None if sha256 is None else Candidate(name="start", source=self._source(sha256))

    @property
    def facts(self) -> ProblemFacts:
        """Of the problem, as the preflight found them."""
        done = self._log.state.preflight
        return (done.preflight.facts if done is not None else None) or UNKNOWN_FACTS

    @property
    def floor_ms(self) -> float | None:
        """Least time of the workload that is timed, in milliseconds."""
        hardware = self.hardware
        timed = [w for w in self.facts.workloads if w.name == self._workload]
        return floor_of(timed[0], hardware).ms if timed and hardware is not None else None

    def judged(self, state: CandidateState) -> None:
        """Take in a candidate whose way has ended."""
        if state.sha256 is None or (state.chosen is not None and state.chosen.action == "drop"):
            return
        self._seqs.append(state.judged_seq)
        self._tried.append(state.index)

    def _entry_at(self, place: int) -> Tried:
        """What is told of the ``place``-th candidate tried; its text comes from the record."""
        state = self._log.state.candidates[self._tried[place]]
        candidate, result = self.candidate(state), state.result
        assert candidate is not None
        light = result.speed_of_light if result else None
        return Tried(
            candidate=candidate,
            status=result.status if result else None,
            reason=(result.reason if result else "") or (state.judged.why if state.judged else ""),
            latency_ms=result.latency_ms.candidate if result and result.latency_ms else None,
            speedup=result.speedup.ratio if result and result.speedup else None,
            fraction_of_light=light.fraction if light else None,
            limits=light.bound if light else "",
        )

    def for_proposer(self, before_seq: int) -> ProposalContext:
        """What a proposer is told, as of a place in the log."""
        name, ms = self._baseline()
        return ProposalContext(
            problem=self._problem,
            facts=self.facts,
            device=self._device,
            language=self._language,
            baseline_name=name,
            baseline_ms=ms,
            floor_ms=self.floor_ms,
            start=self.start,
            tried=History(self._entry, bisect_left(self._seqs, before_seq)),
            pending=self._pending_at(before_seq),
        )

    def for_forecaster(self, evidence: EvidenceProvider | None) -> ForecastContext:
        """What a forecaster is told now."""
        name, ms = self._baseline()
        return ForecastContext(
            problem=self._problem,
            facts=self.facts,
            hardware=self.hardware,
            on_cpu=self._device.kind == "cpu",
            baseline_name=name,
            baseline_ms=ms,
            incumbent_ms=self.incumbent_ms,
            tried=History(self._entry, len(self._tried)),
            evidence=evidence,
            workload=self._workload,
        )

    @property
    def incumbent_ms(self) -> float | None:
        """Time of the best candidate so far, in milliseconds."""
        best = self._log.state.best_state()
        return best.result.latency_ms.candidate if best and best.result and best.result.latency_ms else None

    def _baseline(self) -> tuple[str, float | None]:
        done = self._log.state.baselines
        if done is None:
            return "eager", None
        return done.baselines.fastest, done.baselines.times_ms[done.baselines.fastest]

    def _pending_at(self, seq: int) -> list[Candidate]:
        """Proposed before, and judged later or not yet."""
        state = self._log.state
        later = bisect_left(state.judged, seq, key=lambda index: state.candidates[index].judged_seq)
        open_then = (state.candidates[index] for index in sorted({*state.arrived, *state.judged[later:]}))
        return [found for c in open_then if 0 < c.proposed_seq < seq and (found := self.candidate(c)) is not None]
