"""Proposals written by a language model: one question, at most one repetition with more room, at most one repair."""

from __future__ import annotations

import time
from typing import Any

from tilecast.prompts import render
from tilecast.sandbox.schema import Cost
from tilecast.sandbox.source import Candidate
from tilecast.tools.model.base import CallJournal, ChatAnswer, ChatModel, ChatRequest
from tilecast.tools.propose.base import Proposal, ProposalContext, ProposalRequest
from tilecast.tools.propose.prompting import messages_for
from tilecast.tools.propose.replies import Reply, read_reply

LEAST_ROOM = 16_384
"""Output tokens asked for when an answer was cut off and nothing is configured."""
GROWTH = 2
HOPELESS = {
    "context_length": "the prompt is longer than the model takes",
    "content_filter": "the provider's filter stopped the answer",
}


class LlmProposer:
    """Asks a model for whole files or edits of the parent.

    Args:
        model: the model.
        max_tokens: the configured limit of an answer, if any.
    """

    def __init__(self, model: ChatModel, max_tokens: int | None = None) -> None:
        self._model, self._max_tokens = model, max_tokens

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def costs_money(self) -> bool:
        """Tokens, always."""
        return True

    def interrupt(self) -> None:
        """Cancel the requests in flight."""
        self._model.interrupt()

    def propose(self, request: ProposalRequest, context: ProposalContext, journal: CallJournal) -> Proposal:
        """Ask for one candidate. The same index asks the same questions, so that a resumed run finds their answers.

        Raises:
            BudgetRefused, EnvironmentFailure, RequestCancelled: from the model.
        """
        turn = _Turn(self._model, request, context, journal)
        reply = turn.ask("propose", messages_for(request, context), None)
        if reply.trouble in ("empty", "truncated") and turn.finish_reason not in HOPELESS:
            reply = turn.ask("propose", turn.repeated(reply), self._more_room(turn.last))
        if reply.repairable:
            reply = turn.ask("repair", turn.corrected(reply), turn.room)
        return turn.proposal(reply, self.name)

    def _more_room(self, answer: ChatAnswer) -> int:
        used = answer.usage.output_tokens
        return max(GROWTH * (self._max_tokens or 0), GROWTH * used, LEAST_ROOM if self._max_tokens is None else 0)


class _Turn:
    """The requests of one proposal and what they cost."""

    def __init__(
        self, model: ChatModel, request: ProposalRequest, context: ProposalContext, journal: CallJournal
    ) -> None:
        self._model, self._request, self._context, self._journal = model, request, context, journal
        self._asked: list[list[dict[str, Any]]] = []
        self._answers: list[ChatAnswer] = []
        self._began = time.monotonic()
        self.room: int | None = None

    @property
    def last(self) -> ChatAnswer:
        """The latest answer."""
        return self._answers[-1]

    @property
    def finish_reason(self) -> str:
        """Why the latest answer ended."""
        return self.last.finish_reason

    def ask(self, purpose: str, messages: list[dict[str, Any]], room: int | None) -> Reply:
        """One request; its key is the proposal's index and the number of the question."""
        key = f"{purpose}:{self._request.index}:{len(self._asked)}"
        self._asked.append(messages)
        self.room = room or self.room
        question = ChatRequest(
            key=key,
            purpose=purpose,
            messages=messages,
            max_output_tokens=room,
            deadline_s=self._seconds_left(),
        )
        self._answers.append(self._model.complete(question, self._journal))
        parent = self._request.parent
        return read_reply(self.last.text, self.finish_reason, None if parent is None else parent.source)

    def _seconds_left(self) -> float | None:
        left = self._request.seconds_left
        return None if left is None else max(0.0, left - (time.monotonic() - self._began))

    def repeated(self, reply: Reply) -> list[dict[str, Any]]:
        """The question again, with a word on what was missing."""
        return [*self._asked[0], {"role": "user", "content": render("more_room", reason=reply.detail)}]

    def corrected(self, reply: Reply) -> list[dict[str, Any]]:
        """The conversation so far and what is wrong with its answer."""
        parent = self._request.parent
        source = parent.source if reply.trouble == "edit" and parent is not None else ""
        complaint = render("repair", problem=reply.detail, snippet=reply.snippet, source=source)
        answer = {"role": "assistant", "content": self.last.text}
        return [*self._asked[-1], answer, {"role": "user", "content": complaint}]

    def proposal(self, reply: Reply, origin: str) -> Proposal:
        """The outcome with all that was asked, answered and spent."""
        parent, index = self._request.parent, self._request.index
        candidate, reason = None, ""
        if reply.source is not None:
            candidate = Candidate(name=f"{self._context.language}_{index:03d}", source=reply.source)
        else:
            tries = "" if len(self._answers) == 1 else f" ({len(self._answers)} answers)"
            reason = HOPELESS.get(self.finish_reason, f"no usable file in the answer: {reply.detail}{tries}")
        return Proposal(
            candidate=candidate,
            reason=reason,
            parent_sha256=None if parent is None else parent.sha256,
            origin=origin,
            note=reply.note,
            cost=self._cost(),
            prompt=_transcript(self._asked[-1]),
            reply="\n\n".join(answer.text for answer in self._answers),
        )

    def _cost(self) -> Cost:
        prices = [answer.usage.usd for answer in self._answers]
        known = [usd for usd in prices if usd is not None]
        return Cost(
            seconds=sum(answer.seconds for answer in self._answers),
            tokens=sum(answer.usage.tokens for answer in self._answers),
            usd=sum(known) if len(known) == len(prices) else None,
        )


def _transcript(messages: list[dict[str, Any]]) -> str:
    """Messages as one text, for the record and the reader."""
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)
