"""The judge's operations ``bench`` and ``baselines``: verification, then timing in the same worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tilecast.sandbox.harness.judge.candidate_run import CandidateRun
from tilecast.sandbox.harness.judge.case import CaseBuilder, WorkloadCase
from tilecast.sandbox.harness.judge.changes import layout_kinds
from tilecast.sandbox.harness.judge.failure import Failure, ProblemRefused, WorkerFailed
from tilecast.sandbox.harness.judge.languages import needs_interpreter
from tilecast.sandbox.harness.judge.reference import FULL
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.state_checks import refuse_findings
from tilecast.sandbox.harness.judge.study import Progress, Study
from tilecast.sandbox.harness.judge.timing import ceilings
from tilecast.sandbox.harness.judge.timing.bench import Benchmark, BenchOptions
from tilecast.sandbox.harness.judge.timing.finalist import confirm, warnings
from tilecast.sandbox.harness.judge.timing.place import Place, device_key
from tilecast.sandbox.harness.judge.timing.profiling import profile_candidate
from tilecast.sandbox.harness.judge.verify import Verifier
from tilecast.sandbox.harness.wire import Message

_CPU_LIMIT_BYTES, _CPU_LIMIT_FLOPS = 1 << 26, 20e9
"""Above this one call of ``full`` is not timed on a CPU: the small workload that was checked is."""
_OVERHEAD_S = 120.0


@dataclass
class TimingDesk:
    """Benchmarks of the problems that the judge has studied, by problem and workload; closed with the study."""

    state_dir: Path | None = None
    _benchmarks: dict[tuple[int, str], Benchmark] = field(default_factory=dict)

    def bench(self, verifier: Verifier, candidate: Message, options: Message, progress: Progress) -> Message:
        """The fields of a ``Measurement``: verified, and timed only if it passed.

        Raises:
            ProblemRefused: if no baseline runs.
        """
        quiet = verifier.zygotes.quiet
        start, waited_s = time.monotonic(), quiet.waited_s
        run = _TimedRun(self, verifier, candidate, options, progress)
        status, reason, workload = run.outcome()
        answer: Message = {
            "status": status,
            "reason": reason,
            "workloads": run.workload_results(status, workload),
            "checks": run.trail.checks,
            "source_sha256": candidate["sha256"],
            "sandbox_level": verifier.zygotes.level,
            "device": str(verifier.device),
            "candidate": candidate["name"],
        }
        if status == "PASSED":
            run.timing.setdefault("details", {})["phases_s"] = run.phases.rounded()
            answer |= run.timing
        # While it waits for others on the device, it uses none.
        return {**answer, "seconds": time.monotonic() - start - (quiet.waited_s - waited_s)}

    def baselines(self, verifier: Verifier, options: Message, progress: Progress) -> Message:
        """The fields of ``BaselineTimes``.

        Raises:
            ProblemRefused: if the reference does not run.
        """
        with verifier.zygotes.quiet.exclusive():
            return self._baselines(self.benchmark(verifier, options, progress), options)

    def _baselines(self, bench: Benchmark, options: Message) -> Message:
        chosen = BenchOptions.of(options)
        if chosen.baseline != "auto" or chosen.baseline_source is not None:
            start = time.perf_counter()
            name, worker, _ = bench.baseline(chosen)
            times = bench.baselines.time_alone({name: worker})
            return {"times_ms": times, "fastest": name, "seconds": time.perf_counter() - start, "notes": []}
        ranking = bench.baselines.ranking()
        return {
            "times_ms": ranking.times_ms,
            "fastest": ranking.fastest,
            "seconds": ranking.seconds,
            "notes": list(ranking.notes),
            "kept": ranking.cached,
        }

    def benchmark(self, verifier: Verifier, options: Message, progress: Progress) -> Benchmark:
        """The benchmark of the workload that is timed, set up at first use."""
        study = verifier.study
        name = self._timed_workload(study, str(options.get("workload", FULL)), verifier.device)
        key = (id(study), name)
        if key not in self._benchmarks:
            progress(f"setting up timing on workload {name}")
            case = next((c for c in study.cases if c.name == name), None) or _only_timed(study, name)
            hardware = options.get("hardware")
            place = Place(
                verifier.zygotes, verifier.device, self.state_dir, hardware if isinstance(hardware, dict) else None
            )
            self._benchmarks[key] = Benchmark(place, study.reference.problem, study.builder, case, progress)
        return self._benchmarks[key]

    def _timed_workload(self, study: Study, wanted: str, device: torch.device) -> str:
        """``full``, or on a CPU the largest one checked if a call of ``full`` would take too long there."""
        checked = [case.name for case in study.cases]
        if wanted in checked or device.type == "cuda":
            return wanted
        if wanted not in study.reference.workloads:
            raise ProblemRefused(
                "INVALID_REFERENCE", f"there is no workload {wanted!r}: there are {', '.join(checked)}"
            )
        facts = study.reference.describe(wanted)
        small = "failed" not in facts and facts["flops"] <= _CPU_LIMIT_FLOPS and facts["min_bytes"] <= _CPU_LIMIT_BYTES
        return wanted if small else checked[0]

    def ceilings(self, device: torch.device) -> Message:
        """What the device reaches, measured once and kept; see ``ceilings.measure``."""
        return ceilings.load_or_measure(device, self.state_dir, device_key(device))

    def forget(self, study: Study) -> None:
        """Close what belongs to a study that is closed."""
        for key in [key for key in self._benchmarks if key[0] == id(study)]:
            self._benchmarks.pop(key).close()

    def close(self) -> None:
        """Close everything."""
        for bench in self._benchmarks.values():
            bench.close()
        self._benchmarks.clear()


def _only_timed(study: Study, name: str) -> WorkloadCase:
    """A workload that is not checked: no candidate is given it in a layout, so the reference, which one may end, is not either."""
    return CaseBuilder(study.reference, layout_kinds(study.reference.domain)).build(name)


class _TimedRun(CandidateRun):
    """Verification whose worker, once it has passed, is timed."""

    def __init__(
        self, desk: TimingDesk, owner: Verifier, candidate: Message, options: Message, progress: Progress
    ) -> None:
        super().__init__(owner, candidate, options, progress)
        self.desk = desk
        self.timing: Message = {}

    def _check(self, session: Session, source: str) -> None:
        super()._check(session, source)
        if needs_interpreter(source, self.owner.device):
            note = "its kernels run in an interpreter on this CPU: checked, but a time would mean nothing"
            self.timing = {"details": {"notes": [note]}}
            return
        if self.owner.spare is not None:
            self.owner.spare.settle()
        with self.owner.zygotes.quiet.exclusive():
            self.phases.end("waiting")
            self._time(session, source)
        self.phases.end("timing")

    def _time(self, session: Session, source: str) -> None:
        bench = self.desk.benchmark(self.owner, self.options, self.progress)
        chosen = BenchOptions.of(self.options)
        session.extend(chosen.max_seconds + _OVERHEAD_S)
        self._select(session, bench.case)
        self.progress(f"timing on {bench.case.name}")
        self.timing = bench.measure(session, chosen)
        refuse_findings(session, "timing")
        self._extras(session, bench, chosen, source)

    def _select(self, session: Session, case: WorkloadCase) -> None:
        """The module of the timed workload, with the parameters that the baseline has."""
        self.at = case.name
        if case in self.study.cases:
            session.use(case.name)
        else:
            session.construct("ModelNew", case.arguments, seed=0, slot=f"timed {case.name}")
        if case.state:
            session.set_parameters(case.state)

    def _extras(self, session: Session, bench: Benchmark, chosen: BenchOptions, source: str) -> None:
        details: dict[str, Any] = self.timing["details"]
        if bench.case.name != self.options.get("workload", FULL):
            details["notes"].append(f"timed on workload {bench.case.name!r}: `full` is too large for this CPU")
        details["workload"] = bench.case.name
        if self.options.get("profile"):
            self.progress("profiling")
            details["profile"] = profile_candidate(bench, session, source)
        if self.options.get("confirm"):
            self.progress("confirming in a fresh process")
            with self.owner.session(self.options, source, None) as fresh:
                fresh.extend(2 * chosen.max_seconds + _OVERHEAD_S)
                fresh.load(source, settings=self.study.reference.settings)
                fresh.construct("ModelNew", bench.case.arguments, seed=0)
                if bench.case.state:
                    fresh.set_parameters(bench.case.state)
                details["confirmed"] = confirm(bench, fresh, source, chosen, self.timing)
            details["notes"] += warnings(details["confirmed"])
            if details["confirmed"].get("contradicts"):
                reason = f"timed again in a fresh process it is another: {details['confirmed']['contradicts']}"
                raise WorkerFailed(Failure("REWARD_HACK", reason, "not-reproduced"))
