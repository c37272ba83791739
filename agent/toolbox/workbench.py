"""What the tools work with: one problem, one device kept open between steps, one ledger; spending is set aside first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tilecast.agent.budget import METERS, Amount, Ledger
from tilecast.agent.config import Settings
from tilecast.agent.devices import ChosenDevice, make_sandbox
from tilecast.agent.judging import check_reference, options_of
from tilecast.agent.toolbox.base import Hooks, Refusal, Stopped
from tilecast.agent.toolbox.files import WorkFolder
from tilecast.agent.turns import sandbox_turn
from tilecast.sandbox.base import BaselineTimes, EvaluationOptions, Sandbox
from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.schema import EvaluationStatus, Verification
from tilecast.sandbox.source import Candidate
from tilecast.tools.model.base import BudgetRefused

Answer = TypeVar("Answer", bound=Verification)
LEAST_S = 0.001


class Workbench:
    """One session's place of work.

    Args:
        root: the working folder.
        settings: the resolved configuration.
        home: the user's tilecast folder.
        ledger: what the session spends; shared with whoever pays for the model.
        hooks: how the user is told and asked.
    """

    def __init__(self, root: Path, settings: Settings, home: Path, ledger: Ledger, hooks: Hooks) -> None:
        self.settings, self.home, self.ledger, self.hooks = settings, home, ledger, hooks
        self.files = WorkFolder(root)
        self.stopping = threading.Event()
        self.baselines: BaselineTimes | None = None
        self.on_stop: Callable[[], None] | None = None
        self._device: ChosenDevice | None = None
        self._checked = False
        self._steps = 0

    @property
    def problem(self) -> Problem:
        """The loaded problem.

        Raises:
            Refusal: if there is none yet.
        """
        if self.files.problem is None:
            raise Refusal("no problem is loaded yet; /problem PATH loads one")
        return self.files.problem

    @property
    def loaded(self) -> Problem | None:
        """The loaded problem, if there is one."""
        return self.files.problem

    def load(self, path: str) -> Problem:
        """Load a problem; the device is opened anew when it is needed.

        Raises:
            ProblemError: if it is none.
        """
        problem = load_problem(self.files.root / path)
        self.close_device()
        self.files.problem = problem
        return problem

    @property
    def is_open(self) -> bool:
        """Whether the device is open."""
        return self._device is not None

    def use_device(self, spec: str) -> None:
        """Work on another device from the next step on; a wrong name is an error at once where a problem is loaded.

        Raises:
            TilecastError: if it cannot be used.
        """
        if self.files.problem is not None:
            chosen = make_sandbox(
                spec, self.files.problem, require_sandbox=self.settings.require_sandbox, cluster=self.settings.cluster
            )
            self.close_device()
            self._device = chosen
        self.settings = self.settings.model_copy(update={"device": spec})

    @property
    def device(self) -> ChosenDevice:
        """The device, opened if need be."""
        if self._device is None:
            self._device = make_sandbox(
                self.settings.device,
                self.problem,
                require_sandbox=self.settings.require_sandbox,
                cluster=self.settings.cluster,
            )
            self.hooks.note(self._device.line)
        return self._device

    @property
    def sandbox(self) -> Sandbox:
        """Of the device."""
        return self.device.sandbox

    def options(self) -> EvaluationOptions:
        """How candidates are evaluated, by the configuration."""
        return options_of(self.settings)

    def candidate(self, path: str, config: dict[str, int | float | str | bool]) -> Candidate:
        """A candidate file, with CONFIG values replaced.

        Raises:
            Refusal: if it cannot be read or has no such CONFIG.
        """
        file = Candidate(name=self.files.name_of(path), source=self.files.read(path))
        if not config:
            return file
        known = file.config
        if known is None or not set(config) <= set(known):
            there = "no CONFIG" if known is None else f"CONFIG with {', '.join(known)}"
            raise Refusal(f"{path} has {there}; {', '.join(config)} cannot be set")
        return file.with_config(config)

    def judge(self, what: str, baseline: bool, work: Callable[[Sandbox, EvaluationOptions], Answer]) -> Answer:
        """One step on the device: asked about if it is expensive, set aside, watched by the user, charged.

        Args:
            what: for the user, for instance ``bench fast.py``.
            baseline: whether the baselines have to be known.
            work: the step.

        Raises:
            Refusal: if the user or the budget does not allow it.
            Stopped: if the user stopped it.
            EnvironmentFailure: if the machine is broken.
        """
        sandbox, problem = self.sandbox, self.problem
        estimate = sandbox.estimate(problem)
        seconds = estimate.seconds_per_eval + (0.0 if self._checked else estimate.setup_seconds)
        minutes = 0.0 if sandbox.device.recorded else seconds / 60
        key = self.reserve(what, Amount(evals=1, gpu_seconds=seconds), minutes, estimate.basis)
        began, answer = time.monotonic(), None
        try:
            with sandbox_turn(sandbox, self.hooks.say):
                began = time.monotonic()
                options = self._prepare(sandbox, problem, baseline)
                self._check_stopped()
                self.hooks.say(what)
                answer = work(sandbox, self._within(options))
        except EnvironmentFailure:
            self._check_stopped()
            raise
        finally:
            self.ledger.settle(key, self._cost(sandbox, answer, time.monotonic() - began))
        self._check_stopped()
        return answer

    def reserve(self, what: str, amount: Amount, minutes: float, basis: str) -> str:
        """Set an amount aside; asks first where it is a large share of what is left, or where it does not fit.

        Raises:
            Refusal: if it may not be spent.
        """
        self._steps += 1
        key = f"step:{self._steps}"
        meter, share = self._largest_share(amount, minutes)
        if self.ledger.blocked_by(amount, minutes) is None and share > self.settings.chat.ask_share:
            asked = f"{what}: about {amount.gpu_seconds:.3g} device seconds ({basis}), {share:.0%} of the {meter} left"
            if not self.hooks.confirm(asked):
                raise Refusal(f"{what}: not done, the user did not agree ({asked})")
        while True:
            try:
                self.ledger.reserve(key, amount, minutes)
                self.hooks.reserved(what, amount)
                return key
            except BudgetRefused as refused:
                if not self.hooks.more(refused):
                    raise Refusal(f"{what}: not done, the budget does not allow it: {refused}") from None

    def stop(self) -> None:
        """Stop the step under way (from another thread, or a signal handler's)."""
        self.stopping.set()
        if self.on_stop is not None:
            self.on_stop()
        elif self._device is not None:
            self._device.sandbox.interrupt()

    def close_device(self) -> None:
        """End every process of the device."""
        if self._device is not None:
            self._device.sandbox.close()
        self._device, self._checked, self.baselines = None, False, None

    def _prepare(self, sandbox: Sandbox, problem: Problem, baseline: bool) -> EvaluationOptions:
        if not self._checked:
            check_reference(sandbox, problem, self.hooks.say)
            self._checked = True
        options = self.options()
        if baseline and self.baselines is None:
            self._check_stopped()
            self.baselines = sandbox.baselines(problem, options, self.hooks.say)
        if baseline and self.baselines is not None:
            return options.model_copy(update={"baseline": self.baselines.fastest})
        return options

    def _within(self, options: EvaluationOptions) -> EvaluationOptions:
        """The options with times that fit in what is left; this step's own share is set aside already."""
        left = self.ledger.left("gpu_seconds") + self.ledger.reserved.gpu_seconds
        left = min(left, self.ledger.left("minutes") * 60)
        return options.model_copy(
            update={
                "timeout_s": max(1.0, min(options.timeout_s, left)),
                "max_seconds": max(0.1, min(options.max_seconds, left)),
            }
        )

    def _check_stopped(self) -> None:
        if self.stopping.is_set():
            raise Stopped

    def _largest_share(self, amount: Amount, minutes: float) -> tuple[str, float]:
        shares = []
        for meter in METERS:
            left, wanted = self.ledger.left(meter), minutes if meter == "minutes" else amount.of(meter) or 0.0
            if self.ledger.limits.of(meter) is not None and wanted > 0:
                shares.append((wanted / left if left > 0 else 1.0, meter))
        share, name = max(shares, default=(0.0, ""))
        return name, share

    def _cost(self, sandbox: Sandbox, answer: Verification | None, took_s: float) -> Amount:
        """A recorded evaluation costs its recorded time, one that is not recorded nothing; all else what it took."""
        if answer is not None and answer.status is EvaluationStatus.NOT_RECORDED:
            return Amount()
        if sandbox.device.recorded:
            return Amount(evals=1, gpu_seconds=answer.seconds if answer is not None else 0.0)
        return Amount(evals=1, gpu_seconds=max(LEAST_S, took_s))
