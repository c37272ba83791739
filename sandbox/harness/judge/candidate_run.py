"""One candidate on its way through the checks, from import to the last look. The first defect ends it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch

from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.checker import Checker
from tilecast.sandbox.harness.judge.failure import Rejected, WorkerFailed
from tilecast.sandbox.harness.judge.hogging import is_want_of_memory, refuse_hog
from tilecast.sandbox.harness.judge.languages import static_hints
from tilecast.sandbox.harness.judge.pace import Pace
from tilecast.sandbox.harness.judge.phases import Phases
from tilecast.sandbox.harness.judge.purity import check_purity
from tilecast.sandbox.harness.judge.questions import BURST_CALLS, Questions
from tilecast.sandbox.harness.judge.results import CallResult
from tilecast.sandbox.harness.judge.room import keep_little
from tilecast.sandbox.harness.judge.segments import Call, Segment
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.state_checks import refuse_findings, refuse_reseeding
from tilecast.sandbox.harness.judge.study import Progress
from tilecast.sandbox.harness.judge.trail import Trail
from tilecast.sandbox.harness.wire import Message

if TYPE_CHECKING:
    from tilecast.sandbox.harness.judge.verify import Verifier

_MOST_CONFIGURATIONS = 64


class CandidateRun:
    """One candidate on its way through the checks."""

    def __init__(self, owner: Verifier, candidate: Message, options: Message, progress: Progress) -> None:
        self.owner, self.candidate, self.options, self.progress = owner, candidate, options, progress
        self.study = owner.study
        self.trail = Trail()
        self.phases = Phases()
        self.checker: Checker | None = None
        self.at = ""
        """The workload that is called just now: a crash or a hang is told with it."""
        small = sum(case.is_small for case in self.study.cases)
        self.pace = Pace(owner.device.type, len(self.study.cases), self._timeout_s(), small)
        self.questions = Questions(self.study, self.pace, owner.device)

    def outcome(self) -> tuple[str, str, str]:
        """Status, reason and the workload where it was decided (empty if none)."""
        source = str(self.candidate["source"])
        known = self.owner.hangs.find(str(self.candidate["sha256"]), str(self.owner.device), self._timeout_s())
        if known:
            self.trail.broke("known-hang", known)
            return "TIMEOUT", f"known to hang, not tried again: {known}", ""
        passed = False
        session, cache = self.owner.open(self.options, source)
        try:
            with session:
                self._prepare_next()
                self.checker = Checker(session)
                try:
                    self._check(session, source)
                except Exception as error:
                    if is_want_of_memory(error):
                        refuse_hog(session, self.at)
                    raise
            if self.options.get("pure"):
                self._pure(source, cache)
            passed = True
            return "PASSED", "", ""
        except Rejected as rejected:
            self.trail.broke(rejected.rule or rejected.status.lower(), rejected.reason)
            return rejected.status, self._with_hints(rejected, source), rejected.workload
        except WorkerFailed as failed:
            lost = failed.of_a_helper()
            if lost is not None:
                raise lost from failed
            failure = failed.failure
            if failure.status == "TIMEOUT":
                device = str(self.owner.device)
                self.owner.hangs.remember(str(self.candidate["sha256"]), device, failure.reason, self._timeout_s())
            reason = f"workload {self.at!r}: {failure.reason}" if self.at else failure.reason
            self.trail.broke(failure.rule or failure.status.lower(), reason)
            return failure.status, reason, self.at
        finally:
            self.questions.stop()
            self.owner.builds.give_back(source, cache, passed=passed)

    @property
    def _checks(self) -> Checker:
        assert self.checker is not None
        return self.checker

    def _prepare_next(self) -> None:
        if self.owner.spare is not None:
            self.owner.spare.prepare()

    def _timeout_s(self) -> float:
        return float(self.options.get("timeout_s", 60.0))

    def _with_hints(self, rejected: Rejected, source: str) -> str:
        """Static rules never decide; they may say where to look."""
        hints = static_hints(source) if rejected.status == "REWARD_HACK" else []
        return rejected.reason + (f" [see {'; '.join(hints[:3])}]" if hints else "")

    def _check(self, session: Session, source: str) -> None:
        self.progress("importing and building")
        # Where configurations will be tried, the reference is needed for them before the segments.
        self.questions.begin(first_calls=True, segments="autotune" not in source)
        session.load(source, settings=self.study.reference.settings)
        refuse_findings(session, "import")
        self._build(session)
        self.phases.end("load")
        self._warm(session)
        self.phases.end("first_calls")
        if self.owner.device.type == "cpu":
            # Compilers and interpreters take this machine's processor, which others use too: first calls had the limit to
            # themselves, the checks have it again.
            session.extend(self._timeout_s())
        self._configurations(session)
        self._lock(session)
        self._segments(session)
        self._repeat(session)
        refuse_findings(session, "the calls")
        self._offer_stubs(session)
        self.trail.held("state", "settings, environment, clocks and library functions are as before the import")
        self.phases.end("checks")
        calls, again = self._checks.calls, self._checks.later.done
        self.trail.held("calls", f"{calls} calls judged, {again} outputs looked at again")

    def _offer_stubs(self, session: Session) -> None:
        """What this worker had to build may be built once for all that follow."""
        if self.owner.stubs is not None and not self.owner.stubs.why_not:
            self.owner.stubs.offer(session.request({"op": "stubs"}, "list of launch modules").get("stubs"))

    def _build(self, session: Session) -> None:
        missing: set[str] = set()
        for case in self.study.cases:
            session.construct("ModelNew", case.arguments, slot=case.name)
            refuse_reseeding(session, case)
            if case.state:
                missing |= set(session.set_parameters(case.state))
        if missing:
            self.trail.held("parameters", f"not in both modules: {', '.join(sorted(missing)[:8])}")
        else:
            self.trail.held("parameters", "all names of the reference's state are there")

    def _warm(self, session: Session) -> None:
        """First calls, one a layout: whatever compiles does so here, and its time is not held against a call."""
        for case in self.study.cases:
            self.progress(f"first calls on {case.name}")
            self._use(session, case)
            calls: list[Call] = []
            for call in self.questions.first_calls(case):
                result = self._first_call(session, case, call)
                if calls:  # the first one compiled
                    self.pace.note(case, result.judge_ms / 1e3)
                calls.append(call)
            if calls and not self.pace.knows_any:
                # With one layout, how long a call takes shows from the second on: a slow kernel must not begin with a burst.
                self.pace.note(case, self._first_call(session, case, calls[0]).judge_ms / 1e3)
            self._checks.finish(case)
            self._give_back()

    def _use(self, session: Session, case: WorkloadCase) -> None:
        """From here on calls are on this workload."""
        session.use(case.name)
        self.at = case.name

    def _give_back(self) -> None:
        """Beside other judges, what torch keeps for later is theirs."""
        keep_little(self.owner.device, self.owner.zygotes.quiet.sharers)

    def _first_call(self, session: Session, case: WorkloadCase, call: Call) -> CallResult:
        self._before_call(session, case, case.state)
        return self._checks.call(case, call)

    def _configurations(self, session: Session) -> None:
        """Every autotune configuration gives a right answer, not only the one that won."""
        count = session.request({"op": "configurations"}, "count of configurations").get("count")
        if type(count) is not int or count < 2:
            return
        count = min(count, _MOST_CONFIGURATIONS)
        self.questions.stop()
        cases = [case for case in self.study.cases if self.pace.affords(count, case)]
        cases = cases or [min(self.study.cases, key=lambda case: case.call_bytes)]
        for index in range(count):
            self.progress(f"autotune configuration {index + 1} of {count}")
            session.request({"op": "force", "index": index}, "choice of a configuration")
            for case in cases:
                self._use(session, case)
                call = self.study.makers[case.name].warm_calls(1)[0]
                self._before_call(session, case, case.state)
                try:
                    self._checks.call(case, call)
                except Rejected as rejected:
                    reason = f"autotune configuration {index + 1} of {count}: {rejected.reason}"
                    raise Rejected(rejected.status, reason, rejected.rule, rejected.workload) from None
                self._checks.finish(case)
        session.request({"op": "force", "index": None}, "choice of a configuration")
        self.trail.held("configurations", f"all {count} autotune configurations checked")

    def _pure(self, source: str, cache: str) -> None:
        """In a worker of its own, whose launches are watched and then removed."""
        self.progress("looking for library calls")
        case = next((c for c in self.study.cases if any(spec.elements for spec in c.specs)), self.study.cases[0])
        with self.owner.session(self.options, source, cache) as session:
            session.load(source, settings=self.study.reference.settings)
            session.construct("ModelNew", case.arguments, slot=case.name)
            if case.state:
                session.set_parameters(case.state)
            evidence = check_purity(session, case, self.study.makers[case.name].warm_calls(1)[0])
        self.trail.held("pure", evidence)

    def _lock(self, session: Session) -> None:
        left = session.child_processes()
        if left:
            raise Rejected("REWARD_HACK", f"left a process running after its first calls: {left[0]}", "process-started")
        if session.lock():
            self.trail.held("processes", "after the first calls no process can be started")

    def _repeat(self, session: Session) -> None:
        """The same inputs twice, with the first answer overwritten in between."""
        store = self.study.store.repeats
        for number, case in enumerate(self.study.cases):
            if not case.is_small:
                continue
            if case.name not in store:
                store[case.name] = self.study.makers[case.name].repeat_calls(popular=number == 0)
            self._use(session, case)
            affordable = len(store[case.name]) if self.pace.affords(2 * len(store[case.name]), case) else 1
            altering = self.pace.affords(3 * affordable, case)
            for item in store[case.name][:affordable]:
                if case.state:
                    session.set_parameters(case.state)
                self._checks.repeat(case, item.call, partial(self._before_call, session, case, case.state))
                if altering and item.altered is not None:
                    self._before_call(session, case, case.state)
                    self._checks.once(case, item.altered)
        self.trail.held("repeats", "the same inputs twice, the first answer overwritten in between")

    def _segments(self, session: Session) -> None:
        """The segments of all workloads, in random order; fewer where calls turned out to be slow."""
        if not self.questions.draws_segments:
            self.questions.begin(first_calls=False, segments=True)
        jobs = self.questions.jobs
        for number, job in enumerate(jobs):
            if self.questions.wanted(number):
                self.progress(f"checking {job.case.name}, part {number + 1} of {len(jobs)}")
                self._play(session, *self.questions.segment(number))
                self._give_back()
        self.questions.stop()

    def _play(self, session: Session, segment: Segment, calls: Iterator[Call]) -> None:
        case = segment.case
        self._use(session, case)
        if segment.state:
            session.set_parameters(segment.state, inplace=self._checks.calls % 2 == 0)
        group: list[Call] = []
        bursts = (
            not case.contract.written_state
            and not case.contract.consumes_rng
            and self.questions.fits(case, BURST_CALLS)
        )
        for call in calls:
            if call.step.burst and bursts:
                group.append(call)
                continue
            self._burst(case, group)
            self._before_call(session, case, segment.state)
            result = self._checks.call(case, call)
            self.pace.note(case, result.judge_ms / 1e3)
        self._burst(case, group)
        self._checks.finish(case)

    def _burst(self, case: WorkloadCase, group: list[Call]) -> None:
        if group:
            self._checks.burst(case, group)
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
