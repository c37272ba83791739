"""The run on screen: plain lines where there is no terminal, a live picture where there is one."""

from __future__ import annotations

import sys
from collections import Counter, deque
from typing import IO, TYPE_CHECKING

from tilecast.agent.cli.stopping import REMIND_S, Stopping
from tilecast.agent.progress import BaselineKnown, Began, Ended, Finished, Fleet, Progress, Said, Spent, Step, StopAsked
from tilecast.agent.record.fold import CandidateState
from tilecast.agent.report import wording
from tilecast.sandbox.base import BaselineTimes, WorkerState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LAST_DECISIONS = 8
BAR_WIDTH = 24
SHOWN_WORKERS = 8
NARROW = 100
"""Columns below which the picture has half as many lines, since these fold, and names without what was changed."""
WAITING = "waiting for"


def began_lines(event: Began) -> list[str]:
    """What a run begins with."""
    verb = "taken up again" if event.resumed else "begun"
    device = f"{event.device.name}{wording.mark(event.device.recorded)}"
    return [
        f"run {event.run} {verb}: {event.problem} on {device}",
        f"proposer {event.proposer}, forecaster {event.forecaster}; files in {event.run_dir}",
    ]


def baseline_line(found: BaselineTimes) -> str:
    """The baseline that candidates are compared with, and the others."""
    times = ", ".join(
        f"{name} {wording.milliseconds(ms)}" for name, ms in sorted(found.times_ms.items(), key=lambda t: t[1])
    )
    return f"baseline {found.fastest}: {times}{wording.baselines_mark(found)}"


def decision_line(candidate: CandidateState) -> str:
    """A candidate: what became of it, and why; or that it is waited for."""
    judged = candidate.judged
    if judged is None:
        found = f" | {wording.outcome(candidate)}" if candidate.result is not None else ""
        return f"[waiting] {wording.title(candidate)}{found}"
    flag = wording.lead(candidate.result) if judged.best else "kept" if judged.keep else "drop"
    why = "" if judged.best else f" ({judged.why.splitlines()[0][:120]})"
    return f"[{flag}] {wording.title(candidate)} | {wording.outcome(candidate)}{why}"


def fleet_line(event: Fleet) -> str:
    """How many evaluators there are, what they do, and where to see more."""
    count = Counter(worker.state for worker in event.workers)
    states = ", ".join(f"{count[state]} {state}" for state in ("busy", "idle", "starting") if count[state])
    where = f" · {event.dashboard}" if event.dashboard else ""
    return f"evaluators  {states or 'none'}{where}"


def worker_line(worker: WorkerState) -> str:
    """One evaluator."""
    only = ", only verifies" if worker.role == "verifies" else ""
    doing = f" {worker.item}" if worker.item else ""
    return f"{worker.name}: {worker.device or 'device not known yet'}{only}, {worker.done} done, {worker.state}{doing}"


def running(step: Step) -> str:
    """What is going on."""
    return step.text if step.index is None else f"candidate {step.index}: {step.text}"


def stopping_line(step: Step) -> str:
    """The answer to the first Ctrl-C."""
    return f"finishing the current step ({running(step)}); once more kills it"


class PlainView:
    """One line an event, for logs and pipes.

    Args:
        stream: where to; stderr by default.
        remind_s: how often a run that stops says what it still waits for, in seconds.
    """

    def __init__(self, stream: IO[str] | None = None, remind_s: float = REMIND_S) -> None:
        self._stream = stream or sys.stderr
        self._remind_s = remind_s
        self._now = Step("starting")
        self._stopping: Stopping | None = None
        self._said: set[str] = set()
        self._fleet: set[str] = set()

    def __call__(self, event: Progress) -> None:
        """Show one event."""
        if isinstance(event, Step):
            self._now = event
        elif isinstance(event, StopAsked) and self._stopping is None:
            self._stopping = Stopping(self._remind, self._remind_s)
        elif isinstance(event, Ended):
            self.close()
        for line in self._lines(event):
            self._print(line)

    def close(self) -> None:
        """No line comes after this."""
        if self._stopping is not None:
            self._stopping.end()

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _remind(self, seconds: float) -> None:
        self._print(f"stopping after {running(self._now)} ({seconds:.0f} s)")

    def _step(self, event: Step) -> list[str]:
        """Steps that are about no candidate are said, each once: setting up takes a while."""
        if event.index is not None or event.text in self._said or event.text.startswith(WAITING):
            return []
        self._said.add(event.text)
        return [f"... {event.text}"]

    def _newcomers(self, event: Fleet) -> list[str]:
        """Evaluators that are there for the first time; those that go are told as warnings."""
        new = [w for w in event.workers if w.state != "starting" and w.name not in self._fleet]
        first = not self._fleet and bool(new) and bool(event.dashboard)
        self._fleet.update(worker.name for worker in new)
        told = [f"{worker.name}: {worker.device}{', only verifies' * (worker.role == 'verifies')}" for worker in new]
        return [*([f"dashboard {event.dashboard}"] if first else []), *told]

    def _lines(self, event: Progress) -> list[str]:
        if isinstance(event, Said):
            return [f"warning: {event.text}" if event.warning else event.text]
        if isinstance(event, Began):
            return began_lines(event)
        if isinstance(event, BaselineKnown):
            return [baseline_line(event.baselines)]
        if isinstance(event, Finished):
            return [decision_line(event.candidate)]
        if isinstance(event, Step):
            return self._step(event)
        if isinstance(event, Fleet):
            return self._newcomers(event)
        if isinstance(event, StopAsked):
            return [f"warning: {stopping_line(self._now)}"]
        return [f"stopped by {event.stopped_by}: {event.why}"] if isinstance(event, Ended) else []


class LiveView:
    """Best so far, spend against each limit, what is running, the last decisions: one picture, redrawn in place."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._last: deque[CandidateState] = deque(maxlen=LAST_DECISIONS)
        self._best: CandidateState | None = None
        self._spent: Spent | None = None
        self._step = Step("starting")
        self._baseline: BaselineTimes | None = None
        self._fleet: Fleet | None = None
        self._stopping: Stopping | None = None
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=4, transient=True)
        self._live.start()

    def __call__(self, event: Progress) -> None:
        """Take in one event."""
        if isinstance(event, Said):
            self._console.print(
                f"warning: {event.text}" if event.warning else event.text, markup=False, highlight=False
            )
        elif isinstance(event, Began):
            self._best = event.best
            for line in began_lines(event):
                self._console.print(line, markup=False, highlight=False)
        elif isinstance(event, BaselineKnown):
            self._baseline = event.baselines
        elif isinstance(event, Step):
            self._step = event
        elif isinstance(event, Spent):
            self._spent = event
        elif isinstance(event, Fleet):
            self._fleet = event
        elif isinstance(event, StopAsked):
            self._stopping = self._stopping or Stopping()
            self._console.print(f"warning: {stopping_line(self._step)}", markup=False, highlight=False)
        elif isinstance(event, Finished):
            self._last.append(event.candidate)
            if event.candidate.judged is not None and event.candidate.judged.best:
                self._best = event.candidate

    def close(self) -> None:
        """Take the picture off the screen."""
        self._live.stop()

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel

        parts = [self._best_text(), self._meters(), self._decisions(), self._now_text()]
        if self._fleet is not None:
            parts.append(self._text(fleet_line(self._fleet)))
            shown = SHOWN_WORKERS // 2 if self._narrow else SHOWN_WORKERS
            parts += [self._text(f"  {worker_line(w)}", "dim") for w in self._fleet.workers[:shown]]
            left = len(self._fleet.workers) - shown
            parts += [self._text(f"  and {left} more", "dim")] if left > 0 else []
        return Panel(Group(*parts), title="tilecast", title_align="left", border_style="dim")

    def _now_text(self) -> RenderableType:
        if self._stopping is not None:
            left = f"({self._stopping.seconds:.0f} s; Ctrl-C once more kills it)"
            return self._text(f"stopping after  {running(self._step)} {left}", "yellow")
        flying = f"; {self._spent.in_flight} proposals in flight" if self._spent and self._spent.in_flight else ""
        return self._text(f"now  {running(self._step)}{flying}")

    @property
    def _narrow(self) -> bool:
        return self._console.width < NARROW

    def _best_text(self) -> RenderableType:
        best = self._best
        if best is None or best.result is None:
            return self._text("best  nothing measured yet", "bold")
        against = f" against {self._baseline.fastest}" if self._baseline else ""
        word = wording.lead(best.result)
        style = "bold green" if word == "best" else "bold yellow"
        return self._text(f"{word}  {wording.measured(best.result)}{against} · candidate {wording.title(best)}", style)

    def _meters(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        if self._spent is None:
            return table
        for name in wording.METER_NAMES:
            value = getattr(self._spent.ledger, name)
            if value.limit is None and not value.spent and value.spent is not None:
                continue
            bar: RenderableType = ""
            if value.limit is not None and value.spent is not None:
                bar = ProgressBar(total=value.limit, completed=min(value.spent, value.limit), width=BAR_WIDTH)
            table.add_row(wording.meter(name, value), bar)
        return table

    def _decisions(self) -> RenderableType:
        from rich.table import Table

        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=4)
        table.add_column(ratio=2)
        table.add_column(ratio=3)
        for candidate in list(self._last)[-LAST_DECISIONS // 2 if self._narrow else 0 :]:
            judged = candidate.judged
            faster = wording.lead(candidate.result) == "best"
            flag, style = (
                ("best" if faster else "lead", "green" if faster else "yellow")
                if judged and judged.best
                else ("kept", "")
                if judged and judged.keep
                else ("drop", "dim")
            )
            reason, measured = wording.outcome(candidate), True
            if candidate.result is None or candidate.result.speedup is None:
                reason, measured = judged.why.splitlines()[0] if judged else reason, False
            title = wording.title(candidate, with_note=not self._narrow)
            table.add_row(
                self._text(flag, style), self._text(title, style), self._text(reason, style, cut=not measured)
            )
        return table

    @staticmethod
    def _text(text: str, style: str = "", cut: bool = False) -> RenderableType:
        """Folded where it is too long, so that no figure and no name is cut; ``cut`` is for prose that may be of any length."""
        from rich.text import Text

        return Text(text, style=style, no_wrap=cut, overflow="ellipsis" if cut else "fold")


def make_view(json_wanted: bool) -> PlainView | LiveView:
    """A live picture on a terminal, plain lines on stderr otherwise."""
    if json_wanted or not sys.stderr.isatty():
        return PlainView()
    from rich.console import Console

    console = Console(stderr=True)
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView()
