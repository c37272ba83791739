"""What a user asks of a run, resolved: from flags and configuration to one value, checked before anything is started."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilecast.agent.budget import Limits
from tilecast.agent.config import BudgetSettings, Settings
from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.hardware import require_hardware
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.source import Candidate

DEFAULT_EVALS = 40
"""Taken where no limit at all is given."""
STRATEGIES = ("search", "agent")


@dataclass(frozen=True)
class OptimizeRequest:
    """One run to begin or to take up.

    Attributes:
        problem: what to make faster.
        start: the kernel to start from, if there is one.
        settings: the resolved configuration.
        home: the user's tilecast folder.
        options: how candidates are evaluated.
        limits: the budget.
        target_speedup: stop at this speedup over the baseline.
        patience: stop after so many evaluations in a row without a better one.
        seed: of every choice that is drawn.
        confirm: examine a candidate that is about to take the lead a second time, in a fresh process.
        run_dir: folder that the run's own folder is made in; None is ``home/runs``.
    """

    problem: Problem
    start: Candidate | None
    settings: Settings
    home: Path
    options: EvaluationOptions = field(default_factory=EvaluationOptions)
    limits: Limits = field(default_factory=Limits)
    target_speedup: float | None = None
    patience: int | None = None
    seed: int = 0
    run_dir: Path | None = None
    confirm: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: naming flag and value, before anything of the run is in the record.
        """
        if self.settings.strategy not in STRATEGIES:
            raise UsageError(f"--strategy {self.settings.strategy}: there are {', '.join(STRATEGIES)}")
        if self.target_speedup is not None and not 0 < self.target_speedup < math.inf:
            raise UsageError(f"--target-speedup {self.target_speedup}: must be a number above 0")
        if self.settings.target is not None:
            require_hardware(self.settings.target)
        if self.patience is not None and self.patience < 1:
            raise UsageError(f"--patience {self.patience}: must be at least 1")

    def recorded_settings(self, model: str) -> dict[str, Any]:
        """What the record keeps of the request, besides problem, device and seed."""
        settings = self.settings
        return {
            "model": model,
            "forecaster": settings.forecaster,
            "target": settings.target,
            "language": settings.language,
            "strategy": settings.strategy,
            "in_flight": settings.in_flight,
            "limits": self.limits.as_dict(),
            "target_speedup": self.target_speedup,
            "patience": self.patience,
            "options": self.options.model_dump(mode="json"),
        }


def limits_of(budget: BudgetSettings) -> Limits:
    """The ledger's limits from the configured ones."""
    return Limits(budget.max_evals, budget.max_gpu_seconds, budget.max_tokens, budget.max_usd, budget.max_minutes)
