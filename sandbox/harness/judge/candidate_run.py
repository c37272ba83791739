"""One candidate on its way through the checks, from import to the last look. The first defect ends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tilecast.sandbox.harness.judge import probes
from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.checker import Checker, Rejected
from tilecast.sandbox.harness.judge.failure import WorkerFailed
from tilecast.sandbox.harness.judge.languages import static_hints
from tilecast.sandbox.harness.judge.pace import Pace
from tilecast.sandbox.harness.judge.purity import check_purity
from tilecast.sandbox.harness.judge.script import Call, Segment
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.study import Progress, free_bytes
from tilecast.sandbox.harness.wire import Message

if TYPE_CHECKING:
    from tilecast.sandbox.harness.judge.verify import Verifier

_MOST_CONFIGURATIONS = 64
_FINDINGS = {
    "unsupported": ("ENVIRONMENT_ERROR", "a kernel met something that this machine cannot run: "),
    "out-of-bounds": ("RUNTIME_ERROR", "a kernel reached outside of its tensors: "),
}


@dataclass
class Trail:
    """What was done and found, for the answer."""

    checks: list[dict[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def held(self, name: str, detail: str = "") -> None:
        """A check that passed."""
        self.checks.append({"name": name, "passed": True, "detail": detail})

    def broke(self, name: str, detail: str) -> None:
        """A check that did not."""
        self.checks.append({"name": name, "passed": False, "detail": detail[:500]})


class CandidateRun:
    """One candidate on its way through the checks."""

    def __init__(self, owner: Verifier, candidate: Message, options: Message, progress: Progress) -> None:
        self.owner, self.candidate, self.options, self.progress = owner, candidate, options, progress
        self.study = owner.study
        self.trail = Trail()
        self.checker: Checker | None = None
        self.pace = Pace(owner.device.type, len(self.study.cases), self._timeout_s())

    def outcome(self) -> tuple[str, str, str]:
        """Status, reason and the workload where it was decided (empty if none)."""
        source = str(self.candidate["source"])
        known = self.owner.hangs.find(str(self.candidate["sha256"]), str(self.owner.device), self._timeout_s())
        if known:
            self.trail.broke("known-hang", known)
            return "TIMEOUT", f"known to hang, not tried again: {known}", ""
        cache, passed = self.owner.builds.take(source), False
        try:
            with self.owner.session(self.options, source, cache) as session:
                self.checker = Checker(session)
                self._check(session, source)
            if self.options.get("pure"):
                self._pure(source, cache)
            passed = True
            return "PASSED", "", ""
        except Rejected as rejected:
            self.trail.broke(rejected.rule or rejected.status.lower(), rejected.reason)
            return rejected.status, self._with_hints(rejected, source), rejected.workload
        except WorkerFailed as failed:
            failure = failed.failure
            if failure.status == "TIMEOUT":
                device = str(self.owner.device)
                self.owner.hangs.remember(str(self.candidate["sha256"]), device, failure.reason, self._timeout_s())
            self.trail.broke(failure.rule or failure.status.lower(), failure.reason)
            return failure.status, failure.reason, ""
        finally:
            self.owner.builds.give_back(source, cache, passed=passed)

    def _timeout_s(self) -> float:
        return float(self.options.get("timeout_s", 60.0))

    def _with_hints(self, rejected: Rejected, source: str) -> str:
        """Static rules never decide; they may say where to look."""
        hints = static_hints(source) if rejected.status == "REWARD_HACK" else []
        return rejected.reason + (f" [see {'; '.join(hints[:3])}]" if hints else "")

    def _check(self, session: Session, source: str) -> None:
        self.progress("importing and building")
        session.load(source)
        self._refuse_findings(session, "import")
        self._build(session)
        self._warm(session)
        self._configurations(session)
        self._lock(session)
        self._segments(session)
        self._repeat(session)
        self._refuse_findings(session, "the calls")
        self.trail.held("state", "settings, environment, clocks and library functions are as before the import")
        assert self.checker is not None
        self.trail.held("calls", f"{self.checker.calls} calls judged, {self.checker.rechecked} outputs looked at again")

    def _refuse_findings(self, session: Session, when: str) -> None:
        for item in session.findings():
            status, opening = _FINDINGS.get(item["rule"], ("REWARD_HACK", "the candidate changed its process: "))
            raise Rejected(status, f"during {when} {opening}{item['detail']}", item["rule"])

    def _build(self, session: Session) -> None:
        missing: set[str] = set()
        for case in self.study.cases:
            session.construct("ModelNew", case.arguments, slot=case.name)
            if case.state:
                missing |= set(session.set_parameters(case.state))
        if missing:
            self.trail.held("parameters", f"not in both modules: {', '.join(sorted(missing)[:8])}")
        else:
            self.trail.held("parameters", "all names of the reference's state are there")

    def _warm(self, session: Session) -> None:
        """First calls, one a layout: whatever compiles does so here, and its time is not held against a call."""
        assert self.checker is not None
        for case in self.study.cases:
            self.progress(f"first calls on {case.name}")
            session.use(case.name)
            for number, call in enumerate(self._warm_calls(case)):
                self._before_call(session, case, case.state)
                result = self.checker.call(case, call)
                if number:  # the first one compiled
                    self.pace.note(result.judge_ms / 1e3)
            self.checker.finish(case)

    def _warm_calls(self, case: WorkloadCase) -> list[Call]:
        store = self.study.store.warm
        if case.name not in store or not case.is_small:
            store[case.name] = self.study.makers[case.name].warm_calls()
        return store[case.name]

    def _configurations(self, session: Session) -> None:
        """Every autotune configuration gives a right answer, not only the one that won."""
        assert self.checker is not None
        count = session.request({"op": "configurations"}, "count of configurations").get("count")
        if type(count) is not int or count < 2:
            return
        count = min(count, _MOST_CONFIGURATIONS)
        cases = [case for case in self.study.cases if self.pace.affords(count, case)]
        cases = cases or [min(self.study.cases, key=lambda case: case.call_bytes)]
        for index in range(count):
            self.progress(f"autotune configuration {index + 1} of {count}")
            session.request({"op": "force", "index": index}, "choice of a configuration")
            for case in cases:
                session.use(case.name)
                call = self.study.makers[case.name].warm_calls(1)[0]
                self._before_call(session, case, case.state)
                try:
                    self.checker.call(case, call)
                except Rejected as rejected:
                    reason = f"autotune configuration {index + 1} of {count}: {rejected.reason}"
                    raise Rejected(rejected.status, reason, rejected.rule, rejected.workload) from None
                self.checker.finish(case)
        session.request({"op": "force", "index": None}, "choice of a configuration")
        self.trail.held("configurations", f"all {count} autotune configurations checked")

    def _pure(self, source: str, cache: str) -> None:
        """In a worker of its own, whose launches are watched and then removed."""
        self.progress("looking for library calls")
        case = next((c for c in self.study.cases if any(spec.elements for spec in c.specs)), self.study.cases[0])
        with self.owner.session(self.options, source, cache) as session:
            session.load(source)
            session.construct("ModelNew", case.arguments, slot=case.name)
            if case.state:
                session.set_parameters(case.state)
            evidence = check_purity(session, case, self._warm_calls(case)[0])
        self.trail.held("pure", evidence)

    def _lock(self, session: Session) -> None:
        left = session.child_processes()
        if left:
            raise Rejected("REWARD_HACK", f"left a process running after its first calls: {left[0]}", "process-started")
        if session.lock():
            self.trail.held("processes", "after the first calls no process can be started")

    def _repeat(self, session: Session) -> None:
        """The same inputs twice, with the first answer overwritten in between."""
        assert self.checker is not None
        store = self.study.store.repeats
        for number, case in enumerate(self.study.cases):
            if not case.is_small:
                continue
            if case.name not in store:
                store[case.name] = self.study.makers[case.name].repeat_calls(popular=number == 0)
            session.use(case.name)
            affordable = len(store[case.name]) if self.pace.affords(2 * len(store[case.name]), case) else 1
            for call in store[case.name][:affordable]:
                self._before_call(session, case, case.state)
                if case.state:
                    session.set_parameters(case.state)
                self.checker.repeat(case, call)
        self.trail.held("repeats", "the same inputs twice, the first answer overwritten in between")

    def _segments(self, session: Session) -> None:
        """Kept and newly drawn segments of all workloads, in random order."""
        rng = self.study.makers[self.study.cases[0].name].rng
        jobs: list[tuple[WorkloadCase, Segment | list[probes.Step]]] = []
        for case in self.study.cases:
            wanted = self.pace.calls(case)
            kept = self.study.store.take(case.name, rng)
            jobs += [(case, segment) for segment in kept]
            lacking = wanted - sum(len(segment.calls) for segment in kept)
            if self.pace.affords(14, case) and self._fits(case, 14) and not any(segment.is_burst for segment in kept):
                burst = self.study.makers[case.name].burst()
                jobs.append((case, burst))
                lacking -= len(burst)
            if lacking > 0:
                jobs += [(case, steps) for steps in self.study.makers[case.name].plan(max(2, lacking))]
        rng.shuffle(jobs)
        for number, (case, job) in enumerate(jobs, 1):
            self.progress(f"checking {case.name}, part {number} of {len(jobs)}")
            if isinstance(job, Segment):
                self._play(session, job, iter(job.calls))
            else:
                self._draw_and_play(session, case, job)

    def _draw_and_play(self, session: Session, case: WorkloadCase, steps: list[probes.Step]) -> None:
        drawn = self.study.makers[case.name].segment(steps)
        segment = next(drawn)
        assert isinstance(segment, Segment)
        keeps = case.is_small

        def calls() -> Iterator[Call]:
            for item in drawn:
                assert isinstance(item, Call)
                if keeps:
                    segment.calls.append(item)
                yield item

        self._play(session, segment, calls())
        if keeps:
            self.study.store.keep(segment)

    def _play(self, session: Session, segment: Segment, calls: Iterator[Call]) -> None:
        assert self.checker is not None
        case = segment.case
        session.use(case.name)
        if segment.state:
            session.set_parameters(segment.state, inplace=self.checker.calls % 2 == 0)
        group: list[Call] = []
        bursts = not case.contract.written_state and not case.contract.consumes_rng and self._fits(case, 14)
        for call in calls:
            if call.step.burst and bursts:
                group.append(call)
                continue
            self._burst(case, group)
            self._before_call(session, case, segment.state)
            result = self.checker.call(case, call)
            self.pace.note(result.judge_ms / 1e3)
        self._burst(case, group)
        self.checker.finish(case)

    def _fits(self, case: WorkloadCase, calls: int) -> bool:
        """Whether so many calls may lie in memory at once, here and in the worker."""
        return case.is_small or calls * case.call_bytes * 3 <= free_bytes(self.owner.device) // 2

    def _burst(self, case: WorkloadCase, group: list[Call]) -> None:
        assert self.checker is not None
        if group:
            self.checker.burst(case, group)
            group.clear()

    def _before_call(self, session: Session, case: WorkloadCase, state: dict[str, torch.Tensor]) -> None:
        """Where the reference's forward writes to its state, each call starts from the same one."""
        if case.contract.written_state:
            session.set_parameters({**case.state, **state})

    def workload_results(self, status: str, decided_on: str) -> list[Message]:
        """One entry a workload that was checked, or on which the candidate failed."""
        worst = self.checker.worst if self.checker is not None else {}
        results: list[Message] = []
        for case in self.study.cases:
            if case.name == decided_on:
                results.append({"name": case.name, "status": status, "error": worst.get(case.name)})
            elif status == "PASSED" or case.name in worst:
                results.append({"name": case.name, "status": "PASSED", "error": worst.get(case.name)})
        return results
