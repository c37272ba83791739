"""All that one candidate is asked: its first calls and its segments, drawn by a thread while it compiles and computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tilecast.sandbox.harness.judge import probes
from tilecast.sandbox.harness.judge.ahead import Ahead
from tilecast.sandbox.harness.judge.case import WorkloadCase
from tilecast.sandbox.harness.judge.pace import Pace
from tilecast.sandbox.harness.judge.room import ahead_bytes, burst_bytes
from tilecast.sandbox.harness.judge.segments import Call, Segment, call_bytes
from tilecast.sandbox.harness.judge.study import Study, free_bytes

BURST_CALLS = 14
"""The longest burst."""
_LEAST_PLAN = 6
"""Calls that are drawn together at least: in fewer there is no room for small changes between updates of parameters."""
_COPIES = 4
"""Of a call's inputs and outputs, while it waits to be judged: given, private, expected in float64, and what came."""


@dataclass(frozen=True)
class Job:
    """A segment: one kept from an earlier candidate, or the steps of one to be drawn."""

    case: WorkloadCase
    kept: Segment | None = None
    steps: tuple[probes.Step, ...] = ()

    @property
    def is_burst(self) -> bool:
        """Whether it stands or falls with calls back to back."""
        return self.kept.is_burst if self.kept is not None else any(step.burst for step in self.steps)


@dataclass(frozen=True)
class _Drawn:
    """An item of the thread: ``job`` numbers the segments; the first calls of each workload have a number below zero."""

    job: int
    item: Call | Segment


class Questions:
    """Drawn for one candidate. While its thread runs, nothing else may ask the reference: see :meth:`stop`."""

    def __init__(self, study: Study, pace: Pace, device: torch.device) -> None:
        self.study, self.pace, self.device = study, pace, device
        self.jobs: list[Job] = []
        self._skipped: set[int] = set()
        self._ahead: Ahead[_Drawn] | None = None
        self.draws_segments = False
        self._next: _Drawn | None = None
        self._made: dict[str, int] = {}

    # Planning ----------------------------------------------------------------------------------------------------

    def _plan(self) -> list[Job]:
        """Kept and newly drawn segments of all workloads, in random order."""
        rng = self.study.makers[self.study.cases[0].name].rng
        jobs: list[Job] = []
        asked: Counter[str] = Counter()
        """Families by how often this candidate is asked for them, on all workloads so far."""
        for case in self.study.cases:
            maker = self.study.makers[case.name]
            kept = self.study.store.take(case.name, rng)
            jobs += [Job(case, segment) for segment in kept]
            asked += probes.fresh_families(step for segment in kept for step in segment.steps)
            lacking = self.pace.calls(case) - sum(len(segment.calls) for segment in kept)
            bursts = self.pace.affords(BURST_CALLS, case) and self.fits(case, BURST_CALLS)
            if bursts and not any(segment.is_burst for segment in kept):
                burst = maker.burst(asked)
                asked += probes.fresh_families(burst)
                jobs.append(Job(case, steps=tuple(burst)))
                lacking -= len(burst)
            if lacking > 0:
                planned = maker.plan(max(_LEAST_PLAN, lacking), kept, asked)
                asked += probes.fresh_families(step for steps in planned for step in steps)
                jobs += [Job(case, steps=tuple(steps)) for steps in planned]
        rng.shuffle(jobs)
        return jobs

    def fits(self, case: WorkloadCase, calls: int) -> bool:
        """Whether so many calls may lie in memory at once, here and in the worker."""
        room = burst_bytes(self.device, self.study.reference.session.quiet.sharers, free_bytes(self.device))
        return case.is_small or calls * case.call_bytes * _COPIES <= room

    # Drawing -----------------------------------------------------------------------------------------------------

    def begin(self, *, first_calls: bool, segments: bool) -> None:
        """Start to draw; what of both is asked for comes in that order."""
        self.stop()
        self.jobs = self.jobs or self._plan()
        quiet = self.study.reference.session.quiet
        limit = min(ahead_bytes(self.device, quiet.sharers), free_bytes(self.device) // 8)
        items = self._items(first_calls=first_calls, segments=segments)
        self._ahead = Ahead(items, lambda drawn: _size_bytes(drawn.item), limit, self.device, quiet)
        self.draws_segments = segments

    def stop(self) -> None:
        """End the thread and drop what it drew: from here on the reference may be asked directly."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead, self._next, self.draws_segments = None, None, False

    def _items(self, *, first_calls: bool, segments: bool) -> Iterator[_Drawn]:
        if first_calls:
            for case in self.study.cases:
                if self._first_are_new(case):
                    for call in self.study.makers[case.name].warm_calls():
                        yield _Drawn(-1 - self.study.cases.index(case), call)
        if segments:
            for number, job in enumerate(self.jobs):
                if job.kept is None and number not in self._skipped:
                    for item in self.study.makers[job.case.name].segment(list(job.steps)):
                        yield _Drawn(number, item)
                        if number in self._skipped:
                            break

    def _first_are_new(self, case: WorkloadCase) -> bool:
        return case.name not in self.study.store.warm or not case.is_small

    def _take(self, number: int) -> Iterator[Call | Segment]:
        """The items of one number; those of numbers that were skipped are dropped on the way."""
        assert self._ahead is not None
        while True:
            if self._next is None:
                self._next = next(self._ahead, None)
            if self._next is None:
                return
            if self._next.job in self._skipped:
                self._next = None
                continue
            if self._next.job != number:
                return
            drawn, self._next = self._next, None
            yield drawn.item

    # Asking ------------------------------------------------------------------------------------------------------

    def first_calls(self, case: WorkloadCase) -> Iterator[Call]:
        """One call a layout: whatever a candidate compiles is compiled by these."""
        store = self.study.store.warm
        if not self._first_are_new(case):
            yield from store[case.name]
            return
        made: list[Call] = []
        for item in self._take(-1 - self.study.cases.index(case)):
            assert isinstance(item, Call)
            made.append(item)
            yield item
        if case.is_small:
            store[case.name] = made

    def wanted(self, number: int) -> bool:
        """Whether a segment is still asked, at the pace that the candidate turned out to have."""
        job = self.jobs[number]
        enough = self._made.get(job.case.name, 0) >= self.pace.calls(job.case)
        if enough or (job.is_burst and not self.pace.affords(BURST_CALLS, job.case)):
            self._skipped.add(number)
            return False
        return True

    def segment(self, number: int) -> tuple[Segment, Iterator[Call]]:
        """A segment and its calls, in the order in which they must be made."""
        job = self.jobs[number]
        if job.kept is not None:
            self._count(job.case, len(job.kept.calls))
            return job.kept, iter(job.kept.calls)
        items = self._take(number)
        segment = next(items)
        assert isinstance(segment, Segment)
        return segment, self._drawn_calls(segment, items)

    def _drawn_calls(self, segment: Segment, items: Iterator[Call | Segment]) -> Iterator[Call]:
        keeps = segment.case.is_small
        for item in items:
            assert isinstance(item, Call)
            self._count(segment.case, 1)
            if keeps:
                segment.calls.append(item)
            yield item
        if keeps:
            self.study.store.keep(segment)

    def _count(self, case: WorkloadCase, calls: int) -> None:
        self._made[case.name] = self._made.get(case.name, 0) + calls


def _size_bytes(item: Call | Segment) -> int:
    return call_bytes(item) if isinstance(item, Call) else item.size_bytes
