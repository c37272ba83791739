"""One candidate measured against a baseline: the comparison, its clocks, physics, and everything that is reported of it.

A :class:`Benchmark` belongs to one workload of one problem on one device and serves many candidates: baseline workers,
ceilings and the least traffic are found once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tilecast.sandbox.harness.device_memory import is_roomy
from tilecast.sandbox.harness.judge.case import CaseBuilder, WorkloadCase
from tilecast.sandbox.harness.judge.failure import EnvironmentBroken, Failure, WorkerFailed
from tilecast.sandbox.harness.judge.session import Session
from tilecast.sandbox.harness.judge.timing import ceilings, clocks, physics
from tilecast.sandbox.harness.judge.timing.baselines import EAGER, FILE, Baselines, Bench, Ranking
from tilecast.sandbox.harness.judge.timing.contents import CaseContents
from tilecast.sandbox.harness.judge.timing.least_work import least_work
from tilecast.sandbox.harness.judge.timing.nvml import Nvml, NvmlUnavailable
from tilecast.sandbox.harness.judge.timing.paired import LegRules, PairedLegs
from tilecast.sandbox.harness.judge.timing.place import SYSTEMATIC_MS, WARM_BLOCKS, Place
from tilecast.sandbox.harness.judge.timing.sampling import NothingUsable, Sampled, Sampler
from tilecast.sandbox.harness.judge.timing.statistics import Design
from tilecast.sandbox.harness.judge.timing.timed import Timed
from tilecast.sandbox.harness.judge.timing.window import Window, own_processes
from tilecast.sandbox.harness.judge.timing.workers import TimedWorker

Progress = Callable[[str], None]


@dataclass(frozen=True)
class BenchOptions:
    """What the caller asks for; see ``EvaluationOptions``."""

    baseline: str = "auto"
    baseline_source: str | None = None
    max_seconds: float = 20.0
    margin: float = 0.01

    @classmethod
    def of(cls, options: dict[str, Any]) -> BenchOptions:
        """From the fields of ``EvaluationOptions``; what timing does not know is left to others."""
        known = {name: options[name] for name in cls.__dataclass_fields__ if name in options}
        return cls(**known)


class Benchmark:
    """Measures candidates of one workload. ``builder`` and ``case`` are what verification found out about it."""

    def __init__(
        self, place: Place, problem: dict[str, Any], builder: CaseBuilder, case: WorkloadCase, progress: Progress
    ) -> None:
        self.place, self.problem, self.builder, self.case, self.progress = place, problem, builder, case, progress
        self.contents = CaseContents(builder, case)
        bench = Bench(
            place.zygotes, problem, case, place.device, place.key, place.state_dir, place.flush_bytes, place.cpus
        )
        self.baselines = Baselines(bench, self.contents, progress)
        self.work = least_work(builder, case, place.hardware)
        measured = ceilings.load_or_measure(place.device, place.state_dir, place.key)
        self.peaks = physics.peaks_of(measured, place.hardware, self.work.dtype)

    # Setting up --------------------------------------------------------------------------------------------------

    def window(self) -> Window:
        """A watch over the device for one comparison."""
        if self.place.device.type != "cuda":
            return Window(None, own_processes, "a CPU is not watched: pairing and robust statistics stand alone")
        try:
            uuid = str(torch.cuda.get_device_properties(self.place.device).uuid)
            return Window(Nvml(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"), own_processes)
        except NvmlUnavailable as error:
            return Window(None, own_processes, str(error))

    def baseline(self, options: BenchOptions) -> tuple[str, TimedWorker, Ranking | None]:
        """Name and worker of what to compare with."""
        if options.baseline_source is not None:
            name = options.baseline if options.baseline != "auto" else FILE
            return name, self.baselines.worker(name, options.baseline_source), None
        if options.baseline == "auto":
            ranking = self.baselines.ranking()
            return ranking.fastest, self.baselines.worker(ranking.fastest), ranking
        return options.baseline, self.baselines.worker(options.baseline), None

    # Measuring ---------------------------------------------------------------------------------------------------

    def measure(self, session: Session, options: BenchOptions) -> dict[str, Any]:
        """Time a candidate that passed verification, in the session that it passed it in.

        Returns:
            The timing fields of a ``Measurement``.

        Raises:
            WorkerFailed: with the candidate's failure: a wrong output, clocks that disagree, faster than light.
            ProblemRefused: if the baseline does not run.
        """
        start = time.perf_counter()
        name, baseline, ranking = self.baseline(options)
        candidate = TimedWorker(session, self.case.specs)
        if self.place.cpus:
            session.request({"op": "pin", "cpus": list(self.place.cpus)}, "pinning")
        try:
            timed, report = self._agreed(candidate, baseline, name, options)
            light, review = self._light(timed.sampled, report)
            result = timed.fields(report, name, light, review)
            self._add_warm(result, candidate, baseline, name)
        finally:
            candidate.drop_pool()
            self._give_back()
        if ranking is not None:
            result["details"]["baselines_ms"] = ranking.times_ms
            result["details"]["baseline_notes"] = ranking.notes
        result["seconds"] = round(time.perf_counter() - start, 3)
        return result

    def _agreed(
        self, candidate: TimedWorker, baseline: TimedWorker, name: str, options: BenchOptions, extra_calls: int = 0
    ) -> tuple[Timed, clocks.ClockReport]:
        """A comparison in which the clocks agree.

        Where they do not, all is measured once more before that is believed: on a busy host the judge itself may have been
        held up (one comparison of 70 on an H200 beside seven judges), and who lies about time does so twice.

        Raises:
            WorkerFailed: REWARD_HACK if they disagree again.
        """
        timed = self._compare(candidate, baseline, name, options, extra_calls)
        try:
            return timed, self._agreement(timed)
        except WorkerFailed as error:
            self.progress("the clocks disagree: measuring once more")
            again = self._compare(candidate, baseline, name, options, extra_calls)
            report = self._agreement(again)
            again.notes.append(f"a first comparison was not used: {error.failure.reason}")
            return again, report

    def _give_back(self) -> None:
        """Where other judges share the device and it fills, the pools are theirs to use until the next comparison."""
        device = self.place.device
        if self.place.zygotes.quiet.sharers > 1 and not is_roomy(device):
            self.baselines.trim()
            if device.type == "cuda":
                torch.cuda.empty_cache()

    def measure_again(self, session: Session, options: BenchOptions, name: str, extra_calls: int) -> Timed:
        """Another comparison with the same baseline, with ``extra_calls`` more a leg; clocks and physics apply again.

        Raises:
            WorkerFailed: as :meth:`measure`.
        """
        baseline = self.baselines.worker(name, options.baseline_source)
        candidate = TimedWorker(session, self.case.specs)
        if self.place.cpus:
            session.request({"op": "pin", "cpus": list(self.place.cpus)}, "pinning")
        try:
            # A fresh process compiles at its first call, which is no part of the comparison's time.
            candidate.leg(self.contents.draw(1), "cold", 0, read=False)
            timed, report = self._agreed(candidate, baseline, name, options, extra_calls)
            self._light(timed.sampled, report)
            return timed
        finally:
            candidate.drop_pool()
            self._give_back()

    def _compare(
        self, candidate: TimedWorker, baseline: TimedWorker, name: str, options: BenchOptions, extra_calls: int = 0
    ) -> Timed:
        window = self.window()
        notes: list[str] = []
        reference = None if name == EAGER else self.baselines.worker(EAGER)
        self.start_alike(candidate, baseline, reference)
        legs = PairedLegs(candidate, baseline, self.contents, self._rules(), window, reference)
        legs.on_baseline_difference = notes.append
        plan = self.place.plan(options.max_seconds, self.contents.call_bytes)
        plan = replace(plan, min_calls=plan.min_calls + extra_calls, max_calls=plan.max_calls + extra_calls)
        on_gpu = self.place.device.type == "cuda"
        design = Design(
            margin=options.margin, leg_quantile=0.5 if on_gpu else 0.25, systematic_ms=SYSTEMATIC_MS if on_gpu else 0.0
        )
        try:
            sampled = Sampler(legs, plan, design).run()
        except NothingUsable as error:
            raise EnvironmentBroken(f"{self.place.device} was not quiet enough to time anything: {error}") from error
        legs.finish()
        if notes:
            notes[:] = [f"the baseline's own outputs differ from the eager reference's: {notes[0]}"]
        return Timed(sampled, legs, window, self.place.device.type, notes)

    def start_alike(self, *workers: TimedWorker | None) -> None:
        """A reference that writes to its state: all sides start from the same one, and then make the same calls."""
        if self.case.contract.written_state:
            for worker in workers:
                if worker is not None:
                    worker.session.set_parameters(self.case.state)

    def _rules(self) -> LegRules:
        contract = self.case.contract
        return LegRules(
            flush_bytes=self.place.flush_bytes,
            tolerances=self.contents.tolerances,
            written_inputs=tuple(sorted(contract.written_inputs)),
            aliases=frozenset(contract.aliases),
        )

    def _agreement(self, timed: Timed) -> clocks.ClockReport:
        """The clocks' report.

        Raises:
            WorkerFailed: REWARD_HACK if they disagree.
        """
        legs = timed.legs
        report = clocks.compare(legs.clocks["candidate"], legs.clocks["baseline"], legs.empty, self.place.device.type)
        if report.disagreement:
            raise WorkerFailed(Failure("REWARD_HACK", report.disagreement, "clocks-disagree"))
        return report

    def _light(self, sampled: Sampled, report: clocks.ClockReport) -> tuple[dict[str, Any] | None, str]:
        """Speed of light, and what is to be reviewed.

        Raises:
            WorkerFailed: REWARD_HACK if the time is impossible on this device.
        """
        if self.peaks is None:
            return None, ""
        floor = physics.floor_of(self.work, self.peaks)
        light = {"fraction": floor.ms / sampled.candidate_ms, "bound": floor.bound}
        found = physics.judge_time(
            sampled.candidate_ms, self.work, self.peaks, speedup=sampled.estimate.ratio, confirmed=report.polices
        )
        # Caches of a CPU cannot be emptied from here, so that only a GPU's memory limit is one.
        if found.impossible and self.place.device.type == "cuda":
            raise WorkerFailed(Failure("REWARD_HACK", found.impossible, "faster-than-light"))
        if found.impossible:
            return (
                None,
                "no speed of light: data in the caches of this CPU come faster than its memory, or it was busy when measured",
            )
        return light, found.review

    def _add_warm(self, result: dict[str, Any], candidate: TimedWorker, baseline: TimedWorker, name: str) -> None:
        """A second figure with the inputs in cache: a few legs, medians only."""
        if self.place.device.type != "cuda":
            return
        calls = int(result["details"]["calls_per_leg"])
        reference = None if name == EAGER else self.baselines.worker(EAGER)
        legs = PairedLegs(
            candidate, baseline, self.contents, replace(self._rules(), mode="warm"), self.window(), reference
        )
        times: dict[str, list[float]] = {"candidate": [], "baseline": []}
        for _ in range(WARM_BLOCKS):
            times["candidate"] += legs.leg("candidate", calls).calls_ms.tolist()
            times["baseline"] += legs.leg("baseline", calls).calls_ms.tolist()
        latency = {side: float(np.median(values)) for side, values in times.items()}
        result["details"]["warm"] = {
            "latency_ms": latency,
            "speedup": latency["baseline"] / latency["candidate"],
            "label": "warm L2: inputs read just before the call",
        }

    def close(self) -> None:
        """End the baselines' workers."""
        self.baselines.close()
