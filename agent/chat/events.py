"""What a session's log holds: one frozen event a line, appended before it counts. The session is the fold of its events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from tilecast.agent.record.events import CallAnswered, CallReleased
from tilecast.agent.toolbox.base import ToolResult
from tilecast.sandbox.schema import Document
from tilecast.tools.model.base import Usage


class Opened(Document):
    """A process began to work on the session."""

    kind: Literal["opened"] = "opened"
    folder: str
    limits: dict[str, float | None]


class Chosen(Document):
    """Something was chosen: the problem, the device, the model, or the candidate in hand."""

    kind: Literal["chosen"] = "chosen"
    what: Literal["problem", "device", "model", "candidate"]
    value: str


class LimitsSet(Document):
    """The limits were changed."""

    kind: Literal["limits"] = "limits"
    limits: dict[str, float | None]


class UserSaid(Document):
    """A turn began; ``context`` is put in front of the text for the model."""

    kind: Literal["user"] = "user"
    text: str
    context: str = ""


class CallReserved(Document):
    """A question is about to be sent."""

    kind: Literal["call_reserved"] = "call_reserved"
    key: str
    estimate: Usage


class Partial(Document):
    """What had come of an answer that was stopped."""

    kind: Literal["partial"] = "partial"
    text: str


class StepStarted(Document):
    """A tool is about to work; ``call_id`` is None for a command of the user's."""

    kind: Literal["step_started"] = "step_started"
    call_id: str | None
    tool: str
    arguments: dict[str, Any]


class StepReserved(Document):
    """What the step set aside."""

    kind: Literal["step_reserved"] = "step_reserved"
    evals: int
    gpu_seconds: float


class StepDone(Document):
    """The tool's answer."""

    kind: Literal["step_done"] = "step_done"
    call_id: str | None
    result: ToolResult


class StepLost(Document):
    """A step whose process ended; charged as reserved."""

    kind: Literal["step_lost"] = "step_lost"


class Undone(Document):
    """The last file change was taken back."""

    kind: Literal["undone"] = "undone"


class Noted(Document):
    """Something that the model is told with the next message: marked claims, a broken call."""

    kind: Literal["noted"] = "noted"
    text: str
    at_once: bool = False
    """Part of the conversation now, as a message of the user's side."""


class Compacted(Document):
    """All but the last turns were replaced by facts."""

    kind: Literal["compacted"] = "compacted"
    facts: str
    keep_turns: int


class Cleared(Document):
    """The conversation began anew; facts, files and budget stay."""

    kind: Literal["cleared"] = "cleared"


class TurnEnded(Document):
    """The turn is over: answered, stopped, or given up, and why."""

    kind: Literal["turn_ended"] = "turn_ended"
    why: str


Event = (
    Opened
    | Chosen
    | LimitsSet
    | UserSaid
    | CallReserved
    | CallAnswered
    | CallReleased
    | Partial
    | StepStarted
    | StepReserved
    | StepDone
    | StepLost
    | Undone
    | Noted
    | Compacted
    | Cleared
    | TurnEnded
)
EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
