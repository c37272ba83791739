"""The verification of one candidate: compile, many calls each judged, second looks, guards; a status with its reason.

Order: known hangs are refused; the file is imported and its module built in a fresh worker; one call a workload and layout
(compilation happens here); then the worker may start no process any more, and segments of all workloads follow in random
order. The first defect ends it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from tilecast.sandbox.harness.judge import probes
from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.checker import Checker, Rejected
from tilecast.sandbox.harness.judge.failure import ProblemRefused, WorkerFailed
from tilecast.sandbox.harness.judge.hangs import KnownHangs
from tilecast.sandbox.harness.judge.languages import needs_interpreter, static_hints
from tilecast.sandbox.harness.judge.script import Call, Segment
from tilecast.sandbox.harness.judge.session import Session, SessionOptions
from tilecast.sandbox.harness.judge.study import Study
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.wire import Message

Progress = Callable[[str], None]
_CALLS = 72
"""In all, over the workloads; a defect of one call in eight is missed with a probability of 7e-5."""
_LEAST_CALLS = 8
_SMALL_BYTES = 1 << 26
_BUDGET_S = {"cpu": 6.0, "cuda": 30.0}


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


@dataclass
class Verifier:
    """Verifies candidates of one studied problem on one device."""

    zygotes: Zygotes
    study: Study
    device: torch.device
    hangs: KnownHangs

    def verify(self, candidate: Message, options: Message, progress: Progress) -> Message:
        """The fields of the host's ``Verification`` (without the schema's number)."""
        start = time.monotonic()
        run = CandidateRun(self, candidate, options, progress)
        status, reason, workload = run.outcome()
        return {
            "status": status,
            "reason": reason,
            "workloads": run.workload_results(status, workload),
            "checks": run.trail.checks,
            "source_sha256": candidate["sha256"],
            "sandbox_level": self.zygotes.level,
            "device": str(self.device),
            "seconds": time.monotonic() - start,
            "candidate": candidate["name"],
        }

    def session(self, options: Message, source: str, cache: str | None) -> Session:
        """A fresh worker for a candidate of this problem."""
        shared = sum(case.largest_bytes for case in self.study.cases) * 16
        return Session.open(
            self.zygotes,
            SessionOptions(
                self.device,
                interpret=needs_interpreter(source, self.device),
                timeout_s=float(options.get("timeout_s", 60.0)),
                cache=cache,
                shared_bytes=shared,
            ),
        )


class CandidateRun:
    """One candidate on its way through the checks."""

    def __init__(self, owner: Verifier, candidate: Message, options: Message, progress: Progress) -> None:
        self.owner, self.candidate, self.options, self.progress = owner, candidate, options, progress
        self.study = owner.study
        self.trail = Trail()
        self.checker: Checker | None = None
        self._call_s = 0.0

    def outcome(self) -> tuple[str, str, str]:
        """Status, reason and the workload where it was decided (empty if none)."""
        source = str(self.candidate["source"])
        known = self.owner.hangs.find(str(self.candidate["sha256"]), str(self.owner.device), self._timeout_s())
        if known:
            self.trail.broke("known-hang", known)
            return "TIMEOUT", f"known to hang, not tried again: {known}", ""
        cache = tempfile.mkdtemp(prefix="tilecast-cache-")
        os.chmod(cache, 0o777)  # workers have user ids of their own
        try:
            with self.owner.session(self.options, source, cache) as session:
                self.checker = Checker(session)
                self._check(session, source)
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
            shutil.rmtree(cache, ignore_errors=True)

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
        self._lock(session)
        self._segments(session)
        self._repeat(session)
        self._refuse_findings(session, "the calls")
        self.trail.held("state", "settings, environment, clocks and library functions are as before the import")
        assert self.checker is not None
        self.trail.held("calls", f"{self.checker.calls} calls judged, {self.checker.rechecked} outputs looked at again")

    def _refuse_findings(self, session: Session, when: str) -> None:
        for item in session.findings():
            raise Rejected(
                "REWARD_HACK", f"during {when} the candidate changed its process: {item['detail']}", item["rule"]
            )

    def _build(self, session: Session) -> None:
        missing: set[str] = set()
        for case in self.study.cases:
            session.construct("ModelNew", case.arguments, slot=case.name)
            if case.state:
                missing |= set(session.set_parameters(case.state))
        if missing:
            self.trail.broke("parameters", f"not in both modules: {', '.join(sorted(missing)[:8])}")
        else:
            self.trail.held("parameters", "all names of the reference's state are there")

    def _warm(self, session: Session) -> None:
        """First calls, one a layout: whatever compiles does so here, and its time is not held against a call."""
        assert self.checker is not None
        for case in self.study.cases:
            self.progress(f"first calls on {case.name}")
            session.use(case.name)
            for call in self._warm_calls(case):
                self._before_call(session, case, case.state)
                self.checker.call(case, call)
            self.checker.finish(case)

    def _warm_calls(self, case: WorkloadCase) -> list[Call]:
        store = self.study.store.warm
        if case.name not in store or case.largest_bytes > _SMALL_BYTES:
            store[case.name] = self.study.makers[case.name].warm_calls()
        return store[case.name]

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
            if case.largest_bytes > _SMALL_BYTES or self._slow(case):
                continue
            if case.name not in store:
                store[case.name] = self.study.makers[case.name].repeat_calls(popular=number == 0)
            session.use(case.name)
            for call in store[case.name]:
                self._before_call(session, case, case.state)
                if case.state:
                    session.set_parameters(case.state)
                self.checker.repeat(case, call)
        self.trail.held("repeats", "the same inputs twice, the first answer overwritten in between")

    def _slow(self, case: WorkloadCase) -> bool:
        return self._call_s > 0.5 or case.run_s + case.truth_s > 0.5

    def _segments(self, session: Session) -> None:
        """Kept and newly drawn segments of all workloads, in random order."""
        rng = self.study.makers[self.study.cases[0].name].rng
        jobs: list[tuple[WorkloadCase, Segment | list[probes.Step]]] = []
        for case in self.study.cases:
            wanted = self._calls_for(case)
            kept = self.study.store.take(case.name, rng)
            jobs += [(case, segment) for segment in kept]
            lacking = wanted - sum(len(segment.calls) for segment in kept)
            if not any(segment.is_burst for segment in kept):
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

    def _calls_for(self, case: WorkloadCase) -> int:
        share = max(_LEAST_CALLS, _CALLS // len(self.study.cases) + 1)
        budget_s = _BUDGET_S[self.owner.device.type] / len(self.study.cases)
        each_s = case.run_s + case.truth_s + self._call_s
        return probes.call_count(each_s, budget_s, min(_LEAST_CALLS, share), share)

    def _draw_and_play(self, session: Session, case: WorkloadCase, steps: list[probes.Step]) -> None:
        drawn = self.study.makers[case.name].segment(steps)
        segment = next(drawn)
        assert isinstance(segment, Segment)
        keeps = case.largest_bytes <= _SMALL_BYTES

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
        for call in calls:
            if call.step.burst and not case.contract.written_state and not case.contract.consumes_rng:
                group.append(call)
                continue
            self._burst(case, group)
            self._before_call(session, case, segment.state)
            result = self.checker.call(case, call)
            self._call_s = max(self._call_s * 0.5, result.judge_ms / 1e3)
        self._burst(case, group)
        self.checker.finish(case)

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


def refused(candidate: Message, refusal: ProblemRefused, device: str, level: str) -> Message:
    """The answer where the problem itself is unusable."""
    return {
        "status": refusal.status,
        "reason": refusal.reason,
        "workloads": [],
        "checks": [],
        "source_sha256": candidate["sha256"],
        "sandbox_level": level,
        "device": device,
        "seconds": 0.0,
        "candidate": candidate["name"],
    }
