"""The chat-model protocol and the journal through which every paid call is reserved, recorded and settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from tilecast.sandbox.schema import Document


class Usage(Document):
    """Tokens of one request; ``usd`` is None where the price is unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    estimated: bool = False
    """True where the provider did not say and the tokens were counted from the text's length."""

    @property
    def tokens(self) -> int:
        """Input plus output."""
        return self.input_tokens + self.output_tokens


class ChatRequest(Document):
    """One question to a model. ``key`` names it within the run: the same key is the same question (for resume)."""

    key: str
    purpose: str
    """``propose``, ``repair``, ``forecast`` or ``chat``; for the record and the reader."""
    messages: list[dict[str, Any]]
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] = []
    deadline_s: float | None = None
    """Longest time for the whole call, repetitions included; None leaves it to the model's settings."""


class ChatAnswer(Document):
    """What came back. ``text`` is without reasoning; ``finish_reason`` as the provider gave it."""

    text: str
    reasoning: str = ""
    finish_reason: str = "stop"
    tool_calls: list[dict[str, Any]] = []
    usage: Usage = Usage()
    model: str = ""
    seconds: float = 0.0


class BudgetRefused(Exception):
    """A call may not start: what it would take does not fit in what is left. ``meter`` names the limit."""

    def __init__(self, meter: str, message: str) -> None:
        super().__init__(message)
        self.meter = meter


class RequestCancelled(Exception):
    """The call was stopped by :meth:`ChatModel.interrupt`."""


class Delta(Document):
    """One piece of a streamed answer. For ``tool_call``, ``text`` is the function's name, given once per call."""

    kind: Literal["text", "reasoning", "tool_call"]
    text: str


class CallJournal(Protocol):
    """Money and memory of paid calls. The record implements it; nothing is sent that was not reserved here."""

    def answered(self, key: str) -> ChatAnswer | None:
        """The recorded answer to this key, if it was asked and answered before (a resumed run)."""
        ...

    def reserve(self, request: ChatRequest, estimate: Usage) -> None:
        """Before sending.

        Raises:
            BudgetRefused: if it does not fit.
        """
        ...

    def settle(self, request: ChatRequest, answer: ChatAnswer) -> None:
        """After an answer: durable before it returns."""
        ...

    def release(self, request: ChatRequest, reason: str, charged: Usage) -> None:
        """After a failure: gives the reservation back, less what the provider charged."""
        ...


class ChatModel(Protocol):
    """A language model behind an OpenAI-compatible server (or a scripted one in tests)."""

    @property
    def name(self) -> str: ...

    def complete(self, request: ChatRequest, journal: CallJournal) -> ChatAnswer:
        """Ask, with retries and parameter repair; reserved and settled through the journal.

        Raises:
            BudgetRefused: if the budget does not allow it.
            EnvironmentFailure: if the provider stays unreachable or refuses the key.
            RequestCancelled: if :meth:`interrupt` stopped it.
        """
        ...

    def interrupt(self) -> None:
        """Cancel requests in flight (from another thread)."""
        ...


class StreamingChatModel(ChatModel, Protocol):
    """A chat model that can also hand its answer over piece by piece."""

    def stream(self, request: ChatRequest, journal: CallJournal, on_delta: Callable[[Delta], None]) -> ChatAnswer:
        """As ``complete``; ``on_delta`` is called in the caller's thread for every piece as it comes."""
        ...
