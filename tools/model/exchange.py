"""One question, asked until it is answered: parameters repaired, waits kept, time limits held. Runs on the event loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.tools.model.answers import BadAnswer, Collector, whole_answer
from tilecast.tools.model.base import BudgetRefused, ChatAnswer, ChatRequest, Delta, Usage
from tilecast.tools.model.faults import ROOM, Fault, backoff_s, classify, redact
from tilecast.tools.model.quirks import Quirks
from tilecast.tools.model.settings import LOCAL_KEY, ModelSettings
from tilecast.tools.model.transport import HttpFailure, Transport, Unreachable

HOLD_S = 2.0
"""A server refuses a parameter at once; after this long without an answer the others need not wait to learn of it."""
STREAM_OPTIONS = {"include_usage": True}

Sink = Callable[[Delta], None]


class LostAttempt(Exception):
    """The request was sent and no answer came: the provider may charge it."""


class Gate:
    """Holds requests back while a first one finds out which optional parameters the server takes."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._led = False
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> bool:
        """Wait for the first one's outcome; True for the first one itself."""
        if self._opened.is_set():
            return False
        if not self._led:
            self._led = True
            return True
        await self._opened.wait()
        return False

    def sent(self) -> None:
        """The first one sent a request: if it is not refused soon, it will not be."""
        self.refused()
        self._timer = asyncio.get_running_loop().call_later(HOLD_S, self._opened.set)

    def refused(self) -> None:
        """The first one has to ask again."""
        if self._timer is not None:
            self._timer.cancel()

    def open(self) -> None:
        """Let everybody through from now on."""
        self.refused()
        self._opened.set()


class Server:
    """What all exchanges with one model share."""

    def __init__(self, settings: ModelSettings, transport: Transport, quirks: Quirks, key: str) -> None:
        self.settings, self.transport, self.quirks = settings, transport, quirks
        self.secrets = (key,)
        self.has_key = key != LOCAL_KEY
        self.gate = Gate()
        self.notes: list[str] = []
        self.slots = asyncio.Semaphore(settings.in_flight) if settings.in_flight else None


class Exchange:
    """One attempt to get an answer; only a lost one (sent, not answered) has to be begun again by the caller."""

    def __init__(self, request: ChatRequest, server: Server, attempt: int, deadline: float | None) -> None:
        self.under_way = False
        """Whether a request is at the server right now."""
        self._request, self._server, self._attempt, self._deadline = request, server, attempt, deadline
        self._rng = random.Random()
        self._collector: Collector | None = None

    async def run(self, sink: Sink | None) -> ChatAnswer:
        """Ask until answered.

        Raises:
            BudgetRefused: when the deadline passes.
            EnvironmentFailure: when the server cannot or will not answer.
            LostAttempt: when a request was sent and no answer came.
        """
        try:
            async with asyncio.timeout_at(self._loop_deadline()):
                if self._attempt:
                    await asyncio.sleep(backoff_s(self._attempt, None, self._rng))
                return await self._in_turn(sink)
        except TimeoutError:
            raise BudgetRefused(
                "minutes", f"no answer from {self._server.settings.name} before the time was up"
            ) from None

    def usage_so_far(self) -> Usage | None:
        """Tokens of what a stream brought until now; None where nothing can be seen."""
        collector = self._collector
        return None if collector is None else collector.usage(self._request, self._server.settings)

    async def _in_turn(self, sink: Sink | None) -> ChatAnswer:
        if self._server.slots is None:
            return await self._repaired(sink)
        async with self._server.slots:
            return await self._repaired(sink)

    async def _repaired(self, sink: Sink | None) -> ChatAnswer:
        gate = self._server.gate
        first = bool(self._parameters(sink is not None)) and await gate.enter()
        repetitions, waited_s = 0, 0.0
        try:
            while True:
                parameters = self._parameters(sink is not None)
                if first:
                    gate.sent()
                outcome = await self._once(parameters, sink)
                if isinstance(outcome, ChatAnswer):
                    return outcome
                if first:
                    gate.refused()
                if outcome.action in ("drop", "rename"):
                    self._learn(outcome, parameters)
                elif outcome.action == "wait":
                    waited_s += await self._wait(outcome, repetitions, waited_s)
                    repetitions += 1
                else:
                    return self._final(outcome)
        finally:
            if first:
                gate.open()

    async def _once(self, parameters: dict[str, Any], sink: Sink | None) -> ChatAnswer | Fault:
        body = {**self._essential(sink is not None), **parameters}
        self.under_way = True
        try:
            answer = await (self._whole(body) if sink is None else self._streamed(body, sink))
        except HttpFailure as failure:
            answer = classify(failure.status, failure.headers, failure.body, body)
        except Unreachable as failure:
            if failure.sent:
                raise LostAttempt(str(failure)) from None
            answer = Fault("wait", str(failure))
        except BadAnswer as problem:
            answer = Fault("give_up", f"{problem}; is base_url right? It usually ends in /v1")
        self.under_way = False
        return answer

    async def _whole(self, body: dict[str, Any]) -> ChatAnswer | Fault:
        found = await self._server.transport.whole(body)
        error = found.get("error") if isinstance(found, dict) else None
        if isinstance(error, dict) and not found.get("choices"):
            # Some gateways report a provider's error with status 200.
            code = error.get("code")
            return classify(code if isinstance(code, int) and code >= 400 else 502, {}, found, body)
        return whole_answer(found, self._request, self._server.settings)

    async def _streamed(self, body: dict[str, Any], sink: Sink) -> ChatAnswer:
        self._collector = collector = Collector()
        try:
            async for chunk in self._server.transport.pieces(body):
                for piece in collector.chunk(chunk):
                    sink(piece)
        except (HttpFailure, Unreachable):
            if not collector.characters:
                self._collector = None
                raise
        for piece in collector.last_pieces():
            sink(piece)
        answer = collector.answer(self._request, self._server.settings)
        return answer if collector.finished else answer.model_copy(update={"finish_reason": "lost"})

    def _essential(self, streaming: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._server.settings.name, "messages": self._request.messages}
        if self._request.tools:
            body["tools"] = self._request.tools
        return {**body, "stream": True} if streaming else body

    def _parameters(self, streaming: bool) -> dict[str, Any]:
        """The optional parameters as this server takes them."""
        wanted = self._server.settings.parameters()
        room = self._request.max_output_tokens
        if room is not None:
            wanted[next((name for name in ROOM if name in wanted), ROOM[0])] = room
        if streaming:
            wanted.setdefault("stream_options", STREAM_OPTIONS)
        return self._server.quirks.apply(wanted)

    def _learn(self, fault: Fault, parameters: dict[str, Any]) -> None:
        line = self._server.quirks.learn(fault, parameters)
        if line not in self._server.notes:
            self._server.notes.append(f"{self._server.settings.name}: {line}")

    async def _wait(self, fault: Fault, repetitions: int, waited_s: float) -> float:
        """Sleep before a repetition; gives the seconds."""
        settings = self._server.settings
        wait_s = backoff_s(repetitions, fault.retry_after_s, self._rng)
        if repetitions >= settings.retries:
            raise EnvironmentFailure(self._sentence(fault, f"still failing after {repetitions + 1} requests (retries)"))
        if waited_s + wait_s > settings.patience_s:
            raise EnvironmentFailure(
                self._sentence(fault, f"wait of {wait_s:.0f} s is past patience_s = {settings.patience_s:.0f}")
            )
        if self._deadline is not None and time.monotonic() + wait_s > self._deadline:
            raise BudgetRefused(
                "minutes", self._sentence(fault, f"the time left does not cover a wait of {wait_s:.0f} s")
            )
        await asyncio.sleep(wait_s)
        return wait_s

    def _final(self, fault: Fault) -> ChatAnswer:
        """An answer that says that there is none, where the question is to blame; else an error with its remedy."""
        settings = self._server.settings
        if fault.action in ("too_long", "filtered"):
            reason = "context_length" if fault.action == "too_long" else "content_filter"
            return ChatAnswer(text="", finish_reason=reason, model=settings.name, usage=Usage(usd=0.0))
        remedy = {
            "key": f"set {settings.key_env} to a valid key"
            if self._server.has_key
            else f"it wants a key: set {settings.key_env}",
            "model": "check --model and base_url",
            "quota": f"the account behind {settings.key_env} has nothing left",
        }.get(fault.action, "the request is not taken")
        raise EnvironmentFailure(self._sentence(fault, remedy))

    def _sentence(self, fault: Fault, remedy: str) -> str:
        words = redact(fault.message, self._server.secrets)
        status = f"HTTP {fault.status}: " if fault.status else ""
        return f"model {self._server.settings.name!r} at {self._server.transport.server}: {status}{words}; {remedy}"

    def _loop_deadline(self) -> float | None:
        if self._deadline is None:
            return None
        return asyncio.get_running_loop().time() + self._deadline - time.monotonic()
