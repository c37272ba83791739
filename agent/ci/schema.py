"""The document of a comparison: printed with ``--format json``, carried as an artifact, and all that a comment is made of.

Sizes are bounded, because the artifact of a fork's run is a stranger's text until it has been read through these models.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from tilecast.sandbox.schema import Document, EvaluationStatus, TopLevel

Short = Annotated[str, StringConstraints(max_length=300)]
Text = Annotated[str, StringConstraints(max_length=4_000)]
Patch = Annotated[str, StringConstraints(max_length=20_000)]
Sha = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")]
Positive = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=10**9)]

Verdict = Literal["slower", "faster", "same", "undecided", "incorrect", "added", "removed", "not_compared"]
Basis = Literal["measured", "recorded", "forecast", "none"]
"""Where a verdict comes from. Only ``measured`` and ``recorded`` ones are facts."""


class Ratio(Document):
    """Speedup of head over base (above 1 is faster), with its interval."""

    ratio: Positive
    low: Positive
    high: Positive


class Times(Document):
    """Medians in milliseconds."""

    base: Positive
    head: Positive


class ForecastNote(Document):
    """What was expected before anything was measured; ``speedup`` spans the central 80 %."""

    speedup: Ratio | None = None
    p_faster: Share | None = None
    abstains: bool
    target: Short = ""
    why: Short = ""


class Suggestion(Document):
    """A faster version that was verified and measured against head."""

    speedup: Ratio
    recorded: bool = False
    file: Short
    """Name of the patch among the run's artifacts."""
    patch: Patch = ""
    """A unified diff, where it is short enough to show."""
    run: Short
    spent: Short
    model: Short


class KernelReport(Document):
    """What is known of one kernel that the change reaches."""

    name: Short
    problem: Short
    candidate: Short
    verdict: Verdict
    basis: Basis
    reported: bool
    """Whether it is worth a word to a reviewer: the interval excludes no change by the threshold, or it is incorrect."""
    threshold: Share
    status: EvaluationStatus | None = None
    """Of head, against the reference; None if that was not checked."""
    base_status: EvaluationStatus | None = None
    speedup: Ratio | None = None
    latency_ms: Times | None = None
    forecast: ForecastNote | None = None
    causes: Annotated[list[Short], Field(max_length=12)] = []
    """Differences that the compiler or the record shows, likeliest cause first."""
    limits: Short = ""
    """What limits head now."""
    why: Text = ""
    samples: Count | None = None
    device: Short = ""
    versions: dict[
        Annotated[str, StringConstraints(max_length=40)], Annotated[str, StringConstraints(max_length=80)]
    ] = {}
    sandbox: Short = ""
    cached: bool = False
    seconds: Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)] = 0.0
    files: Annotated[list[Short], Field(max_length=20)] = []
    suggestion: Suggestion | None = None


class PullRequest(Document):
    """Which pull request this is about."""

    number: Annotated[int, Field(gt=0, lt=10**9)]
    repository: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$")]
    fork: bool


class CiReport(TopLevel):
    """The answer of ``tilecast ci``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)
    base: Sha
    head: Sha
    kernels: Annotated[list[KernelReport], Field(max_length=200)] = []
    known: Count = 0
    """Kernels that are looked after."""
    files: Count = 0
    """Changed files."""
    device: Short = ""
    """Where kernels were measured; empty if nowhere."""
    target: Short = ""
    """The GPU that forecasts are for."""
    skipped: Short = ""
    """Why nothing was looked at, if so."""
    notes: Annotated[list[Text], Field(max_length=20)] = []
    fail_on: Literal["never", "incorrect", "regression"] = "never"
    failed: bool = False
    """Whether ``fail_on`` asks for a red build."""
    pull_request: PullRequest | None = None
    version: Short = ""

    @property
    def reported(self) -> list[KernelReport]:
        """Kernels that are worth a word."""
        return [kernel for kernel in self.kernels if kernel.reported]


def cut(text: str, limit: int = 300) -> str:
    """Text on one line within ``limit`` characters; names that are no Unicode get question marks."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
