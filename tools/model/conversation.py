"""A conversation with tools: turns kept as the API wants them, tool calls typed and checked, long ones shortened with care."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tilecast.sandbox.schema import Document
from tilecast.tools.model.base import ChatAnswer, ChatRequest
from tilecast.tools.model.settings import estimate_tokens

CUT = "[… {count} characters left out]"


class ToolCall(Document):
    """One call that the model asks for; ``problem`` says why it cannot be made (arguments that are no JSON object)."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    problem: str = ""


class ToolSpec(Document):
    """One function that the model may call; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]

    def as_api(self) -> dict[str, Any]:
        """In the API's form."""
        return {"type": "function", "function": self.model_dump()}


def tool_calls(answer: ChatAnswer, known: Sequence[str]) -> list[ToolCall]:
    """The calls in an answer, each checked for its name and its arguments."""
    return [_tool_call(call, known) for call in answer.tool_calls]


def _tool_call(call: dict[str, Any], known: Sequence[str]) -> ToolCall:
    function = call["function"]
    name, text = function["name"], function["arguments"]
    if name not in known:
        return ToolCall(id=call["id"], name=name, problem=f"there is no tool {name!r}; there are {', '.join(known)}")
    try:
        arguments = json.loads(text) if text.strip() else {}
    except ValueError as error:
        return ToolCall(id=call["id"], name=name, problem=f"the arguments of {name} are not JSON: {error}")
    if not isinstance(arguments, dict):
        return ToolCall(
            id=call["id"], name=name, problem=f"the arguments of {name} must be a JSON object, not {text[:80]}"
        )
    return ToolCall(id=call["id"], name=name, arguments=arguments)


class Conversation:
    """Messages in order; every tool call has its result, whatever happened, as servers insist on it.

    Args:
        system: the system message; it and the first question stay whatever is shortened.
        messages: an earlier conversation without its system message (from :meth:`dump`).
    """

    def __init__(self, system: str, messages: Sequence[dict[str, Any]] = ()) -> None:
        self._system = {"role": "system", "content": system}
        self._messages: list[dict[str, Any]] = [dict(message) for message in messages]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What is sent: system message first, results for calls that were never answered put in."""
        return [self._system, *_completed(self._messages)]

    @property
    def pending(self) -> list[dict[str, Any]]:
        """Tool calls of the last answer that have no result yet (a turn that was interrupted)."""
        return _unanswered(self._messages)

    @property
    def tokens(self) -> int:
        """Estimated size, at four characters a token."""
        return estimate_tokens(self.messages, [])

    def dump(self) -> list[dict[str, Any]]:
        """The messages without the system message, as JSON-like values."""
        return [dict(message) for message in self._messages]

    def say(self, text: str) -> None:
        """A message of the user's."""
        self._messages = _completed(self._messages)
        self._messages.append({"role": "user", "content": text})

    def hear(self, answer: ChatAnswer) -> None:
        """The model's answer; its reasoning is not kept."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.tool_calls:
            message["tool_calls"] = answer.tool_calls
        self._messages.append(message)

    def result(self, call_id: str, text: str) -> None:
        """The result of a tool call."""
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def request(self, key: str, tools: Sequence[ToolSpec], max_output_tokens: int | None = None) -> ChatRequest:
        """The next question."""
        specs = [tool.as_api() for tool in tools]
        return ChatRequest(
            key=key, purpose="chat", messages=self.messages, tools=specs, max_output_tokens=max_output_tokens
        )

    def compact(self, facts: str, keep_turns: int) -> int:
        """Replace all but the last ``keep_turns`` turns (a turn begins with the user's message) by ``facts``.

        Gives the number of messages taken out; 0 if there was nothing to take.
        """
        starts = [i for i, message in enumerate(self._messages) if message["role"] == "user"]
        if len(starts) <= keep_turns:
            return 0
        cut = starts[-keep_turns] if keep_turns else len(self._messages)
        if cut == 0:
            return 0
        note = [{"role": "user", "content": facts}, {"role": "assistant", "content": "Understood."}]
        self._messages = [*note, *self._messages[cut:]]
        return cut

    def shorten_results(self, limit: int, keep_last: int) -> None:
        """Cut tool results longer than ``limit`` characters in the middle, but for the last ``keep_last`` messages."""
        for message in self._messages[: max(0, len(self._messages) - keep_last)]:
            content = message["content"]
            if message["role"] == "tool" and len(content) > limit:
                half = limit // 2
                left_out = CUT.format(count=len(content) - 2 * half)
                message["content"] = f"{content[:half]}\n{left_out}\n{content[len(content) - half :]}"


def _unanswered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i]["role"] == "assistant"), None)
    if last is None:
        return []
    answered = {message["tool_call_id"] for message in messages[last + 1 :] if message["role"] == "tool"}
    return [call for call in messages[last].get("tool_calls", []) if call["id"] not in answered]


def _completed(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With a result for each call of an interrupted turn: servers refuse a conversation in which one is missing."""
    missing = _unanswered(messages)
    if not missing:
        return messages
    last = max(i for i, message in enumerate(messages) if message["role"] == "assistant")
    end = last + 1
    while end < len(messages) and messages[end]["role"] == "tool":
        end += 1
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "Not run: interrupted by the user."} for call in missing
    ]
    return [*messages[:end], *results, *messages[end:]]
