"""What can happen in a run, one frozen model a kind. The log of these is the truth; everything else is folded from it.

Long texts (sources, prompts, replies) are kept once by their hash; an event names the hash.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from tilecast.sandbox.base import BaselineTimes, DeviceFacts, Estimate, Preflight
from tilecast.sandbox.schema import Cost, Document, Forecast, Measurement, StoppedBy, Verification
from tilecast.tools.model.base import ChatAnswer, Usage

Action = Literal["measure", "audit", "skip", "drop"]
"""What is done with a proposal before it is evaluated: ``audit`` measures one that the forecaster rules out,
``drop`` ends one that is no candidate or is one that was dealt with before."""


class SessionOpened(Document):
    """A process took up the run: the first time, or after an end or a kill."""

    kind: Literal["session"] = "session"
    number: int
    resumed: bool = False
    limits: dict[str, float | None] = {}
    """Of this session: a run that is taken up may be given more."""


class PreflightDone(Document):
    """The reference was checked on the device; device seconds as charged."""

    kind: Literal["preflight"] = "preflight"
    device: DeviceFacts
    preflight: Preflight
    estimate: Estimate
    charged_gpu_s: float


class BaselinesDone(Document):
    """The baselines were timed."""

    kind: Literal["baselines"] = "baselines"
    baselines: BaselineTimes
    charged_gpu_s: float


class CallReserved(Document):
    """A paid request is about to be sent; what it may cost at most is set aside."""

    kind: Literal["call_reserved"] = "call_reserved"
    key: str
    purpose: str
    request: str
    """Hash of the request's messages."""
    estimate: Usage


class CallAnswered(Document):
    """A paid request was answered."""

    kind: Literal["call_answered"] = "call_answered"
    key: str
    answer: ChatAnswer


class CallReleased(Document):
    """A paid request failed; ``charged`` is what it cost all the same."""

    kind: Literal["call_released"] = "call_released"
    key: str
    reason: str
    charged: Usage


class CallLost(Document):
    """A paid request was in flight when the process died: charged as reserved, for its answer will never come."""

    kind: Literal["call_lost"] = "call_lost"
    key: str
    charged: Usage


class ProposalAsked(Document):
    """The ``index``-th proposal was asked for, with what was known then (everything up to this event)."""

    kind: Literal["asked"] = "asked"
    index: int
    parent_sha256: str | None


class Proposed(Document):
    """A proposal came: a candidate, or none with the reason."""

    kind: Literal["proposed"] = "proposed"
    index: int
    name: str = ""
    source_sha256: str | None = None
    canonical: str | None = None
    parent_sha256: str | None = None
    origin: str = ""
    note: str = ""
    reason: str = ""
    cost: Cost = Cost()
    prompt: str | None = None
    reply: str | None = None
    exhausted: bool = False


class Forecasted(Document):
    """What the forecaster said of a candidate."""

    kind: Literal["forecast"] = "forecast"
    index: int
    forecast: Forecast


class Chosen(Document):
    """Whether the candidate is evaluated, and why."""

    kind: Literal["chosen"] = "chosen"
    index: int
    action: Action
    why: str


class EvaluationStarted(Document):
    """A candidate is about to be sent to the device; one evaluation and its expected device seconds are set aside."""

    kind: Literal["evaluation_started"] = "evaluation_started"
    index: int
    reserved_gpu_s: float


class Verified(Document):
    """Correctness and integrity are known; the evaluation goes on if it passed."""

    kind: Literal["verified"] = "verified"
    index: int
    verification: Verification


class EvaluationDone(Document):
    """The evaluation is finished. ``counted`` is False where nothing was sent to a device (NOT_RECORDED)."""

    kind: Literal["evaluated"] = "evaluated"
    index: int
    result: Measurement
    counted: bool
    charged_gpu_s: float


class EvaluationLost(Document):
    """The process died during an evaluation, or the budget ended it: charged, and without a result."""

    kind: Literal["evaluation_lost"] = "evaluation_lost"
    index: int
    charged_gpu_s: float
    why: str
    again: bool
    """Whether the candidate may be evaluated once more."""


class EvaluationLeft(Document):
    """The session ended and the evaluation goes on elsewhere: nothing is charged, and its result is asked for again."""

    kind: Literal["evaluation_left"] = "evaluation_left"
    index: int


class Judged(Document):
    """The end of a candidate's way: kept or dropped, and why; ``best`` if it is the fastest so far."""

    kind: Literal["judged"] = "judged"
    index: int
    keep: bool
    best: bool
    why: str


class Stopped(Document):
    """The run ended, for now."""

    kind: Literal["stopped"] = "stopped"
    stopped_by: StoppedBy
    why: str


class Failed(Document):
    """The session ended by an error that is no candidate's; the run can be taken up again."""

    kind: Literal["failed"] = "failed"
    error: str


class Noted(Document):
    """Something a reader should know that changes no figure (a budget mark passed, a limit raised)."""

    kind: Literal["noted"] = "noted"
    text: str
    figures: dict[str, Any] = {}


Event = Annotated[
    SessionOpened
    | PreflightDone
    | BaselinesDone
    | CallReserved
    | CallAnswered
    | CallReleased
    | CallLost
    | ProposalAsked
    | Proposed
    | Forecasted
    | Chosen
    | EvaluationStarted
    | Verified
    | EvaluationDone
    | EvaluationLost
    | EvaluationLeft
    | Judged
    | Stopped
    | Failed
    | Noted,
    Field(discriminator="kind"),
]

EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads one event back from its JSON."""


class Stored(Document):
    """An event with its place in the log and the run's time in seconds when it happened (all sessions together)."""

    seq: int
    elapsed_s: float
    at: str
    event: Event
