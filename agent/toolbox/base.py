"""What a tool gives back, the facts that it establishes, and the questions that it may ask before it spends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tilecast.agent.budget import Amount
from tilecast.agent.progress import Progress
from tilecast.sandbox.schema import Document, EvaluationStatus
from tilecast.tools.model.base import BudgetRefused


class Fact(Document):
    """One figure that the record holds: a measurement, a recorded one, or a forecast (which is never a measurement)."""

    kind: Literal["measured", "recorded", "forecast", "verified"]
    candidate: str
    source_sha256: str
    status: str = EvaluationStatus.PASSED.value
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    ms: float | None = None
    ms_low: float | None = None
    ms_high: float | None = None
    baseline: str = ""
    baseline_ms: float | None = None
    verdict: str = ""
    light: float | None = None
    """Fraction of the speed of light."""
    config: dict[str, int | float | str | bool] = {}
    """CONFIG values that were used instead of the file's."""
    problem: str = ""
    where: str = ""
    """The tool or run that it comes from."""

    @property
    def is_time(self) -> bool:
        """Whether it is a time that a device took, here or when it was recorded."""
        return self.kind in ("measured", "recorded") and self.ms is not None


class FileChange(Document):
    """One file written: its text before (None if there was none) and after."""

    path: str
    before: str | None
    after: str


class Charged(Document):
    """What a step was charged on the ledger."""

    evals: int = 0
    gpu_seconds: float = 0.0
    tokens: int = 0
    usd: float | None = 0.0


class ToolResult(Document):
    """The answer of a tool: one line for the screen, a short text for the model, facts for the record."""

    tool: str
    ok: bool
    summary: str
    text: str = ""
    facts: list[Fact] = []
    change: FileChange | None = None
    charged: Charged = Charged()
    document: dict[str, Any] = {}
    """The contract's document, where the tool has one."""
    interrupted: bool = False

    @property
    def for_model(self) -> str:
        """What the model is told."""
        return self.text or self.summary


class Refusal(Exception):
    """A tool does not do what was asked; the message says why and what would be possible."""


class Stopped(Exception):
    """The user stopped the step."""


@dataclass
class Hooks:
    """How a tool reaches whoever uses it.

    Attributes:
        say: one line of progress.
        note: one line that stays, such as the device that was chosen.
        confirm: asked before an expensive step; its text names the estimate. False refuses the step.
        more: a limit is reached; True if it was raised and the step may be tried again.
        progress: told of a run's progress.
        reserved: told of what was set aside for a step before it begins, so that a record can keep it.
    """

    say: Callable[[str], None] = lambda text: None
    note: Callable[[str], None] = lambda text: None
    confirm: Callable[[str], bool] = lambda text: True
    more: Callable[[BudgetRefused], bool] = lambda refused: False
    progress: Callable[[Progress], None] = lambda event: None
    reserved: Callable[[str, Amount], None] = lambda what, amount: None
