"""From a provider's JSON, whole or in pieces, to a :class:`ChatAnswer`. Nothing is taken on trust but being JSON."""

from __future__ import annotations

import json
from typing import Any

from tilecast.tools.model.base import ChatAnswer, ChatRequest, Delta, Usage
from tilecast.tools.model.reasoning import ReasoningSplitter, split_reasoning
from tilecast.tools.model.settings import CHARACTERS_PER_TOKEN, ModelSettings, estimate_tokens

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class BadAnswer(Exception):
    """The server answered with something that is no chat completion."""


def whole_answer(body: Any, request: ChatRequest, settings: ModelSettings) -> ChatAnswer:
    """The answer in a chat completion.

    Raises:
        BadAnswer: if the body holds no choice.
    """
    collector = Collector()
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadAnswer(f"no `choices` in the answer: {str(body)[:200]}")
    message = choices[0].get("message")
    collector.message(message if isinstance(message, dict) else {})
    collector.close(choices[0], body)
    return collector.answer(request, settings)


class Collector:
    """Puts an answer together from messages or streamed deltas."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._splitter = ReasoningSplitter()
        self._usage: dict[str, Any] | None = None
        self._finish = ""
        self._model = ""

    @property
    def characters(self) -> int:
        """How much has come so far."""
        arguments = sum(len(call["function"]["arguments"]) for call in self._calls.values())
        return sum(map(len, self._content)) + sum(map(len, self._reasoning)) + arguments

    @property
    def finished(self) -> bool:
        """Whether the server said why it stopped."""
        return bool(self._finish)

    def message(self, message: dict[str, Any]) -> list[Delta]:
        """Take in a message or a delta; gives the pieces in it that can be shown."""
        shown: list[Delta] = []
        for field in REASONING_FIELDS:
            text = message.get(field)
            if isinstance(text, str) and text:
                self._reasoning.append(text)
                shown.append(Delta(kind="reasoning", text=text))
                break
        content = _text_of(message.get("content")) or _text_of(message.get("refusal"))
        if content:
            self._content.append(content)
            shown += [Delta(kind=kind, text=piece) for kind, piece in self._splitter.feed(content)]
        calls = message.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict):
                shown += self._tool_call(call, position)
        return shown

    def chunk(self, chunk: dict[str, Any]) -> list[Delta]:
        """Take in one streamed chunk."""
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = choice.get("delta")
        shown = self.message(delta) if isinstance(delta, dict) else []
        self.close(choice, chunk)
        return shown

    def close(self, choice: dict[str, Any], body: dict[str, Any]) -> None:
        """Note finish reason, usage and model where they are given."""
        self._finish = str(choice.get("finish_reason") or self._finish)
        self._model = str(body.get("model") or self._model)
        usage = body.get("usage")
        if isinstance(usage, dict):
            self._usage = usage

    def last_pieces(self) -> list[Delta]:
        """What was held back because it might have been half a tag."""
        return [Delta(kind=kind, text=piece) for kind, piece in self._splitter.finish()]

    def answer(self, request: ChatRequest, settings: ModelSettings) -> ChatAnswer:
        """The whole answer, its reasoning set apart and its usage priced."""
        text, thought = split_reasoning("".join(self._content))
        reasoning = "\n".join(part for part in ("".join(self._reasoning), thought) if part)
        return ChatAnswer(
            text=text,
            reasoning=reasoning,
            finish_reason=self._finish or "stop",
            tool_calls=[self._calls[index] for index in sorted(self._calls)],
            usage=self.usage(request, settings),
            model=self._model or settings.name,
        )

    def usage(self, request: ChatRequest, settings: ModelSettings) -> Usage:
        """Tokens as reported; where nothing was reported, estimated from the text's length and marked so."""
        reported = self._usage or {}
        prompt, output = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
        estimated = prompt is None or output is None
        if prompt is None:
            prompt = estimate_tokens(request.messages, request.tools)
        if output is None:
            output = -(-self.characters // CHARACTERS_PER_TOKEN)
        details = reported.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        price = settings.price_known()
        usd = None if price is None else price.usd(prompt, output, min(cached or 0, prompt))
        return Usage(input_tokens=prompt, output_tokens=output, usd=usd, estimated=estimated)

    def _tool_call(self, call: dict[str, Any], position: int) -> list[Delta]:
        index = call.get("index")
        number = index if isinstance(index, int) else position
        new = number not in self._calls
        empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        known = self._calls.setdefault(number, empty)
        known["id"] = str(call.get("id") or known["id"] or f"call_{number}")
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        known["function"]["name"] += str(function.get("name") or "")
        arguments = function.get("arguments")
        if arguments is not None:
            known["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
        name = known["function"]["name"]
        return [Delta(kind="tool_call", text=name)] if new and name else []


def _text_of(content: Any) -> str:
    """A message's text, whether it is a text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [
        part.get("text") for part in parts if isinstance(part, dict) and part.get("type") in ("text", "output_text")
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
