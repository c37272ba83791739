"""Legs of two real workers on the same contents, every output checked, both clocks kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from tilecast.sandbox.harness.judge.failure import Failure, WorkerFailed
from tilecast.sandbox.harness.judge.timing.clocks import LegClocks
from tilecast.sandbox.harness.judge.timing.closeness import all_plainly_close, difference
from tilecast.sandbox.harness.judge.timing.interference import Waiting, allowance
from tilecast.sandbox.harness.judge.timing.lead import flushes_for
from tilecast.sandbox.harness.judge.timing.sampling import Leg, Side
from tilecast.sandbox.harness.judge.timing.window import Window
from tilecast.sandbox.harness.judge.timing.workers import Content, LegRun, Mode, TimedWorker

EMPTY_LEGS, EMPTY_AGAIN_AFTER = 5, 8
"""Empty legs before the first leg of a size, and after how many legs of a side there is one more."""

BASELINE_CHECKS = 24
"""Outputs of a baseline that are compared with the eager reference's: it is trusted, and what differs is a note."""
REFERENCE_CALLS = 6
"""Calls of the eager reference at once, where it is not the baseline."""


class ContentSource(Protocol):
    """Draws contents, and applies the strict rule where the quick check is not satisfied."""

    def draw(self, count: int) -> list[Content]:
        """New contents as the problem makes them, from seeds that nobody can guess."""
        ...

    def strict(self, content: Content, outputs: Sequence[Tensor | None]) -> Failure | None:
        """The full comparison with float64 truth; None if the outputs are right after all."""
        ...


@dataclass(frozen=True)
class LegRules:
    """What the problem and the device say about legs.

    Attributes:
        flush_bytes: overwritten before each call (0 on a CPU).
        tolerances: one an output, relative.
        written_inputs: inputs that the reference writes to: they must come out alike.
        aliases: pairs of output and input that share memory in the reference.
        mode: ``cold`` or ``warm``.
    """

    flush_bytes: int = 0
    tolerances: tuple[float, ...] = ()
    written_inputs: tuple[int, ...] = ()
    aliases: frozenset[tuple[int, int]] = frozenset()
    mode: Mode = "cold"


@dataclass
class _Pending:
    content: Content
    outputs: list[Tensor | None] | None = None
    written: list[Tensor] = field(default_factory=list)
    expected_written: list[Tensor] = field(default_factory=list)


class PairedLegs:
    """A source of legs for the sampler: candidate and baseline alive at once, alternating, on one sequence of contents.

    Both sides make the same calls in the same order, so a model with state stays in step. Where the baseline is not the
    eager reference, ``reference`` computes what is expected, outside of the timed legs.
    """

    def __init__(
        self,
        candidate: TimedWorker,
        baseline: TimedWorker,
        contents: ContentSource,
        rules: LegRules,
        window: Window,
        reference: TimedWorker | None = None,
    ) -> None:
        self.workers = {"candidate": candidate, "baseline": baseline}
        self.reference, self.contents, self.rules, self.window = reference, contents, rules, window
        self.clocks: dict[Side, list[LegClocks]] = {"candidate": [], "baseline": []}
        self.waiting: dict[Side, Waiting] = {"candidate": Waiting(), "baseline": Waiting()}
        self.empty: dict[int, list[float]] = {}
        self.empty_call_ms: list[float] = []
        self.joined_by_synchronising = 0
        self.checked = 0
        self.flushes = flushes_for(0.0, rules.flush_bytes)
        self._warming, self._over = True, False
        self._baseline_checks = 0
        self.on_baseline_difference: Callable[[str], None] = lambda text: None
        self._queue: list[_Pending] = []
        self._first = 0
        self._at: dict[Side, int] = {"candidate": 0, "baseline": 0}

    def now_s(self) -> float:
        """The judge's clock."""
        return time.perf_counter()

    def leg(self, side: Side, calls: int) -> Leg:
        """One leg.

        Raises:
            WorkerFailed: if the candidate failed, its process changed, or an output was wrong.
        """
        self._empty_legs(side, calls)
        items = self._take(side, calls)
        worker = self.workers[side]
        counts = not self.rules.flush_bytes  # on a device, what a process waits for a processor moves no figure
        waited_ms = worker.waited_ms() if counts else 0.0
        contents = [item.content for item in items]
        # What nobody looks at need not be copied out: the eager reference's outputs are there already.
        read = side == "candidate" or self.reference is None or self._baseline_checks < BASELINE_CHECKS
        run = worker.leg(contents, self.rules.mode, self.rules.flush_bytes, flushes=self.flushes, read=read)
        if self._warming:  # later it stays, so that legs and empty legs are alike
            self._lengthen(run.queueing_ms)
        if counts:
            self.waiting[side].add(worker.waited_ms() - waited_ms, run.judge_ms)
        reason = self.window.discard_reason()
        if not self._over:
            self.clocks[side].append(LegClocks(calls, float(run.inner_ms.sum()), run.worker_ms, run.judge_ms))
        self._settle(side, items, run)
        return Leg(side, run.inner_ms, run.judge_ms, reason)

    def _empty_legs(self, side: Side, calls: int) -> None:
        """Those that are due before a leg; none where its clocks are held against nothing."""
        if self._warming or self._over or self.rules.mode == "warm":
            return
        if calls not in self.empty:
            self.measure_empty(calls, EMPTY_LEGS)
        elif len(self.clocks[side]) % EMPTY_AGAIN_AFTER == EMPTY_AGAIN_AFTER - 1:
            self.measure_empty(calls, 1)

    def _lengthen(self, queueing_ms: float) -> None:
        self.flushes = max(self.flushes, flushes_for(queueing_ms, self.rules.flush_bytes))

    def settled(self) -> None:
        """Forget clocks of the warm-up, when the device may have been slow; empty legs are made from here on."""
        self._warming = False
        for side in ("candidate", "baseline"):
            self.clocks[side].clear()
            self.waiting[side] = Waiting()

    def interference(self) -> float:
        """What other work on the processors may have done to the ratio; nothing where a device does the work: none is counted."""
        return allowance(self.waiting["candidate"], self.waiting["baseline"])

    def measure_empty(self, calls: int, times: int) -> None:
        """Legs that do everything but call, in the baseline's worker."""
        contents = self.contents.draw(1) * calls
        for _ in range(times):
            run = self.workers["baseline"].leg(
                contents, "empty", self.rules.flush_bytes, flushes=self.flushes, read=False
            )
            self.empty.setdefault(calls, []).append(run.judge_ms)
            self.empty_call_ms += run.inner_ms.tolist()

    def finish(self) -> None:
        """Check what the candidate computed ahead of the other side; this leg of the other's counts for nothing.

        Raises:
            WorkerFailed: if an output was wrong.
        """
        self._over = True
        ahead = self._at["candidate"] - self._at["baseline"]
        if ahead > 0:
            self.leg("baseline", ahead)

    def _take(self, side: Side, calls: int) -> list[_Pending]:
        start = self._at[side]
        missing = start + calls - self._first - len(self._queue)
        if missing > 0:
            fresh = self.contents.draw(missing)
            if self.reference is not None:
                self._expect(self.reference, fresh)
            self._queue += [_Pending(content) for content in fresh]
        self._at[side] = start + calls
        return self._queue[start - self._first : start + calls - self._first]

    def _expect(self, reference: TimedWorker, fresh: list[Content]) -> None:
        """The eager reference's outputs, a few calls at a time: its pool need not be as large as those that are timed."""
        for start in range(0, len(fresh), REFERENCE_CALLS):
            some = fresh[start : start + REFERENCE_CALLS]
            run = reference.leg(some, "cold", 0)
            for content, outputs in zip(some, run.outputs, strict=True):
                content.expected = [item for item in outputs if item is not None]

    def _settle(self, side: Side, items: list[_Pending], run: LegRun) -> None:
        self.joined_by_synchronising += run.joined_by_synchronising
        if side == "candidate":
            _refuse_findings(run)
        for index, (item, outputs) in enumerate(zip(items, run.outputs, strict=True)):
            written = self._written(side, index)
            if side == "candidate":
                _refuse_claims(run.claims[index], self.rules.aliases)
                item.outputs, item.written = outputs, written
            elif self.reference is None:
                item.content.expected = [value for value in outputs if value is not None]
                item.expected_written = written
            else:
                self._check_baseline(item.content, outputs)
        self._check_ready()

    def _written(self, side: Side, index: int) -> list[Tensor]:
        if not self.rules.written_inputs:
            return []
        now = self.workers[side].inputs_now(index)
        return [now[i] for i in self.rules.written_inputs]

    def _check_ready(self) -> None:
        """Check and forget what both sides have computed."""
        done = min(self._at.values()) - self._first
        items = self._queue[:done]
        pairs = [
            (item.content.expected, item.outputs)
            for item in items
            if item.content.expected is not None and item.outputs is not None
        ]
        alike = all_plainly_close(pairs, self.rules.tolerances)
        for item in items:
            self._check(item, outputs_are_right=alike)
        del self._queue[:done]
        self._first += done

    def _check(self, item: _Pending, *, outputs_are_right: bool) -> None:
        expected, outputs = item.content.expected, item.outputs
        if expected is None or outputs is None:
            return
        self.checked += 1
        if not outputs_are_right and difference(expected, outputs, self.rules.tolerances):
            failure = self.contents.strict(item.content, outputs)
            if failure is not None:
                raise WorkerFailed(failure)
        exact = [
            0.0 if not v.dtype.is_floating_point else max(self.rules.tolerances, default=1e-4) for v in item.written
        ]
        if self.reference is None and difference(item.expected_written, item.written, exact):
            raise WorkerFailed(
                Failure("INCORRECT_NUMERICAL", "a timed call left other values in an input than the reference")
            )

    def _check_baseline(self, content: Content, outputs: list[Tensor | None]) -> None:
        if content.expected is not None and self._baseline_checks < BASELINE_CHECKS:
            self._baseline_checks += 1
            text = difference(content.expected, outputs, self.rules.tolerances)
            if text:
                self.on_baseline_difference(text)


def _refuse_findings(run: LegRun) -> None:
    if run.findings:
        first = run.findings[0]
        reason = f"while calls were timed: {first.get('detail', '')}"[:400]
        raise WorkerFailed(Failure("REWARD_HACK", reason, str(first.get("rule", ""))[:60]))


def _refuse_claims(claims: list[dict[str, Any]], aliases: frozenset[tuple[int, int]]) -> None:
    for index, claim in enumerate(claims):
        if claim.get("plain") is not True:
            kind = str(claim.get("kind", "?"))[:60]
            reason = f"a timed call returned a {kind} with attributes of its own instead of a plain tensor"
            raise WorkerFailed(Failure("REWARD_HACK", reason, "lazy-output"))
        inside = claim.get("in_input")
        if inside is not None and (index, inside) not in aliases and 0 not in claim.get("shape", []):
            reason = f"output {index} of a timed call lies in the memory of input {inside}, the reference's does not"
            raise WorkerFailed(Failure("REWARD_HACK", reason, "output-aliases-input"))
