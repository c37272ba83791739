"""Evaluation on a host that this one cannot reach: bundles of work in a folder, results when somebody brings them."""

from __future__ import annotations

import shlex
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from tilecast.sandbox.base import (
    BaselineTimes,
    DeviceFacts,
    Estimate,
    EvaluationOptions,
    Expected,
    Incident,
    Preflight,
    ProgressSink,
    Slot,
    WorkerState,
)
from tilecast.sandbox.bundle_answers import check_answer, other_baseline, outcome
from tilecast.sandbox.bundle_box import BundleBox, Item, Result
from tilecast.sandbox.bundle_workers import Onlooker
from tilecast.sandbox.errors import EnvironmentFailure, WorkLeft
from tilecast.sandbox.hardware import catalogue
from tilecast.sandbox.harness.bundles import layout
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.schema import Document, EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate

AT_ONCE = 16
"""Candidates that the loop may have under way at once: a round trip through a queue is dear, so a bundle holds many."""
GATHER_S, GATHER_MOST_S = 2.0, 60.0
"""How long a bundle waits for the next candidate before it is written, and for how long altogether."""
POLL_S = 1.0
_ASSUMED_S, _SETUP_S = 20.0, 60.0
Answer = TypeVar("Answer", bound=Document)


class BundleSandbox:
    """The sandbox protocol through a folder. Calls wait for their result; several may wait at once, from several threads.

    Args:
        folder: the bundle folder.
        stream: name of this run's work in it; taken up again under the same name.
        problem: what is evaluated.
        expected: what can be sent with the first bundle.
    """

    benchmark_verifies = True
    keeps_work = True
    """Work that was handed over goes on without this process: a run may be left and taken up again."""
    slots = AT_ONCE
    dashboard = ""

    def __init__(self, folder: Path, stream: str, problem: Problem, expected: Expected | None = None) -> None:
        self.folder = folder
        self._unsaid: list[Incident] = []
        self._news, self._sent = 0, False
        self._shown: int | None = 0
        self._expected = expected
        self._lock = threading.RLock()
        self._leaving = threading.Event()
        self._wanted: list[Item] = []
        self._wanted_since_s = self._added_s = self._scanned_s = 0.0
        self._onlooker = Onlooker(folder)
        self._spent_s: list[float] = []
        shared = {
            "problem": problem.payload(),
            "hardware": [sheet.model_dump(mode="json") for sheet in catalogue().values()],
            "confirm": expected is not None and expected.confirm,
        }
        self._box = BundleBox(folder, stream, shared, (self._tell, check_answer))
        self._failed_before = frozenset(self._box.failed)

    @property
    def command(self) -> str:
        """What to run on the GPU's host, beside the folder or the copy of it."""
        return f"python3 {shlex.quote(f'{self.folder.name}/{layout.PROGRAM}')} --once"

    @property
    def device(self) -> DeviceFacts:
        """The device that answered; until one has, a stand-in without figures."""
        found = self._box.device
        if found is None:
            return DeviceFacts(kind="bundle", name=f"bundle {self.folder.name}")
        return DeviceFacts.model_validate({**found, "kind": "bundle"})

    def bind(self, device: DeviceFacts) -> None:
        """The device that the run was measured on before: results of another model are refused from now on."""
        with self._lock:
            self._box.bind(device.model_dump(mode="json"))
            self._failed_before = frozenset(self._box.failed)

    def preflight(self, problem: Problem, progress: ProgressSink) -> Preflight:
        """The reference, looked at where it will be measured; baselines and the start kernel are sent along."""
        item = self._item("preflight", {})
        ahead = [item]
        if self._expected is not None:
            options, start = self._expected.options, self._expected.start
            ahead.append(self._baselines_item(options))
            if start is not None:
                ahead.append(self._candidate_item("bench", start, options))
        return self._have(ahead, Preflight, progress)

    def estimate(self, problem: Problem) -> Estimate:
        """Mean seconds of the evaluations made so far; before any, an assumption."""
        if self._spent_s:
            mean = sum(self._spent_s) / len(self._spent_s)
            return Estimate(seconds_per_eval=mean, setup_seconds=_SETUP_S, basis="measured")
        return Estimate(seconds_per_eval=_ASSUMED_S, setup_seconds=_SETUP_S, basis="assumed")

    def baselines(self, problem: Problem, options: EvaluationOptions, progress: ProgressSink) -> BaselineTimes:
        """Times of the reference as it is and compiled."""
        return self._have([self._baselines_item(options)], BaselineTimes, progress)

    def verify(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Verification:
        """Correctness and integrity of one candidate."""
        found = self._have([self._candidate_item("verify", candidate, options)], Verification, progress)
        return found.model_copy(update={"candidate": candidate.name})

    def benchmark(
        self, problem: Problem, candidate: Candidate, options: EvaluationOptions, progress: ProgressSink
    ) -> Measurement:
        """Verified, then timed against the baseline in the same worker.

        A machine that failed at it is a value here: one host's trouble is no reason to give up a run.
        """
        try:
            found = self._have([self._candidate_item("bench", candidate, options)], Measurement, progress)
            if other_baseline(found, options):
                found = self._have([self._explicit("bench", candidate, options)], Measurement, progress)
        except WorkLeft:
            raise
        except EnvironmentFailure as error:
            return Measurement(
                status=EvaluationStatus.ENVIRONMENT_ERROR,
                reason=str(error),
                source_sha256=candidate.sha256,
                candidate=candidate.name,
            )
        self._spent_s = [*self._spent_s[-99:], found.seconds]
        return found.model_copy(update={"candidate": candidate.name})

    def lint(self, problem: Problem, progress: ProgressSink) -> dict[str, Any]:
        """Which wrong kernels the checker would accept on this problem."""
        return dict(self._wait([self._item("lint", {})], progress))

    def interrupt(self) -> None:
        """Stop waiting; see :meth:`leave`."""
        self.leave()

    def leave(self) -> None:
        """Make every call that waits raise :class:`WorkLeft`; safe in a signal handler."""
        self._leaving.set()

    def expect(self, expected: Expected) -> None:
        """Say what will be asked for, before anything was."""
        self._expected = expected
        self._box.shared["confirm"] = expected.confirm

    def slot(self) -> Slot:
        """A place for one evaluation: they all wait for the same folder."""
        return self

    def turn(self) -> AbstractContextManager[None]:
        """Nothing is waited for: the worker takes its device's turn itself."""
        return nullcontext()

    def workers(self) -> list[WorkerState]:
        """Workers that have said something of themselves, where the folder is shared."""
        return self._onlooker.states()

    def incidents(self) -> list[Incident]:
        """Refusals since the last call, and what to run."""
        with self._lock:
            self._shown = None
            said, self._unsaid = self._unsaid, []
            return said

    def finished(self) -> None:
        """The run is over: results that came twice are named, and what nobody waits for any more is withdrawn."""
        with self._lock:
            self._box.scan(everything=True)
            self._box.withdraw()

    def close(self) -> None:
        """Nothing runs here."""
        self._leaving.set()

    def _baselines_item(self, options: EvaluationOptions) -> Item:
        return self._item("baselines", {"options": options.model_dump(mode="json")})

    def _candidate_item(self, op: str, candidate: Candidate, options: EvaluationOptions) -> Item:
        """The item as asked; or the one that was sent before it was known which baseline is the fastest."""
        item = self._explicit(op, candidate, options)
        if not self._box.knows(item["id"]) and options.baseline != "auto" and options.baseline_source is None:
            early = self._explicit(op, candidate, options.model_copy(update={"baseline": "auto"}))
            return early if self._box.knows(early["id"]) else item
        return item

    def _explicit(self, op: str, candidate: Candidate, options: EvaluationOptions) -> Item:
        text = {"source": candidate.source, "sha256": candidate.sha256}
        item = self._item(op, {"candidate": text, "options": options.model_dump(mode="json")})
        return {**item, "label": candidate.name}

    def _item(self, op: str, args: dict[str, Any]) -> Item:
        """An item; one at which the machine failed in an earlier session of the run is asked for anew."""
        attempt, item = 0, self._box.make_item(op, args)
        while item["id"] in self._failed_before:
            attempt += 1
            item = self._box.make_item(op, {**args, "attempt": attempt})
        return item

    def _have(self, items: list[Item], kind: type[Answer], progress: ProgressSink) -> Answer:
        """The answer to the first of ``items``; the others are only sent along."""
        return kind.model_validate(self._wait(items, progress))

    def _wait(self, items: list[Item], progress: ProgressSink) -> Result:
        """Send what was not sent yet and wait for the first.

        Raises:
            WorkLeft: if the wait is given up.
            InvalidReference: if the problem is refused.
            EnvironmentFailure: if the worker's machine failed at it, or the folder cannot be used.
        """
        wanted, told, news = items[0]["id"], "", 0
        with self._lock:
            self._box.set_up()
            new = [item for item in items if not self._box.knows(item["id"])]
            if new:
                self._added_s = time.monotonic()
                self._wanted_since_s = self._wanted_since_s if self._wanted else self._added_s
            self._wanted += new
        while True:
            with self._lock:
                self._exchange(urgent=items[0]["op"] != "bench")
                body = self._box.answer(wanted)
                said, found = self._to_show(), self._news
                line = self._waiting_line()
            for text in said:
                progress(text)
            if body is not None:
                return outcome(body)
            if self._leaving.is_set():
                raise WorkLeft(f"the work in {self.folder} goes on without this process")
            if line != told or found != news:  # what a refusal says is asked for by whoever hears that something is new
                progress(line)
                told, news = line, found
            self._leaving.wait(POLL_S / 4 if self._wanted else POLL_S)

    def _exchange(self, urgent: bool) -> None:
        """Send a bundle if it is due, and look for results."""
        now_s = time.monotonic()
        full = len(self._wanted) >= self.slots or now_s - self._wanted_since_s >= GATHER_MOST_S
        quiet = now_s - self._added_s >= GATHER_S
        if self._wanted and (full or quiet or urgent or self._leaving.is_set()):
            before, count = self._box.open_items, self._box.send(self._wanted)
            self._wanted = []
            if count:
                self._tell(self._announced(count, first=not self._sent, open_before=before), False)
            self._sent = self._sent or count > 0
        if self._leaving.is_set() or now_s - self._scanned_s >= POLL_S / 2:
            self._box.scan()
            self._scanned_s = time.monotonic()

    def _announced(self, count: int, first: bool, open_before: int) -> str:
        """A bundle was written: what somebody has to do who waits for no prompt of the worker."""
        if first and not open_before:
            return f"{count} item(s) of work in {self.folder}"
        again = "bring it there if it is no shared folder, and run the worker again unless it still runs"
        return f"{count} more item(s) in {self.folder}: {again}"

    def _waiting_line(self) -> str:
        where = self._onlooker.at_work() or "no worker seen"
        copying = f"; {self._box.incomplete} file(s) still being copied" if self._box.incomplete else ""
        return f"waiting for {self._box.open_items + len(self._wanted)} result(s) in {self.folder} ({where}{copying})"

    def _tell(self, text: str, warning: bool = True) -> None:
        self._unsaid.append(Incident(text=text, warning=warning))
        self._news += 1

    def _to_show(self) -> list[str]:
        """What a call that waits has to say itself, before anybody asks for incidents."""
        if self._shown is None:
            return []
        new = [incident.text for incident in self._unsaid[self._shown :]]
        self._shown = len(self._unsaid)
        return new
