"""The one chat model of the product: any OpenAI-compatible server, asked through the ``openai`` client.

Every call is reserved in the journal before it is sent and settled when it is answered. Requests run on an event loop of
their own, so that one that waits can be cancelled from another thread at once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from tilecast.sandbox.errors import EnvironmentFailure
from tilecast.tools.model.base import CallJournal, ChatAnswer, ChatRequest, Delta, RequestCancelled, Usage
from tilecast.tools.model.exchange import Exchange, LostAttempt, Server
from tilecast.tools.model.faults import redact
from tilecast.tools.model.quirks import Quirks
from tilecast.tools.model.settings import DEFAULT_OUTPUT_TOKENS, ModelSettings, estimate_tokens
from tilecast.tools.model.transport import Transport

DeltaSink = Callable[[Delta], None]


class OpenAIChatModel:
    """A model behind an OpenAI-compatible server.

    Args:
        settings: where it is and how it is asked.
        key: the key to send; it appears in no message and no file.
        home: folder in which refused parameters are remembered, or None for this process only.
    """

    def __init__(self, settings: ModelSettings, key: str, home: Path | None = None) -> None:
        self.settings = settings
        transport = Transport(settings, key)
        self._server = Server(settings, transport, Quirks(transport.server, settings.name, home), key)
        self._lock = threading.Lock()
        self._running: set[concurrent.futures.Future[ChatAnswer]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        """The model's name as the server knows it."""
        return self.settings.name

    @property
    def notes(self) -> list[str]:
        """What the user should know: parameters that the server does not take."""
        return list(self._server.notes)

    def complete(self, request: ChatRequest, journal: CallJournal) -> ChatAnswer:
        """Ask and wait for the whole answer; a key that was answered before is not asked again.

        Raises:
            BudgetRefused: if the journal does not allow it, or the request's deadline passes.
            EnvironmentFailure: if the provider stays unreachable, or refuses the key or the model.
            RequestCancelled: after :meth:`interrupt`.
        """
        return self._ask(request, journal, None)

    def stream(self, request: ChatRequest, journal: CallJournal, on_delta: DeltaSink) -> ChatAnswer:
        """As :meth:`complete`; ``on_delta`` gets every piece in the caller's thread. An exception from it cancels the call."""
        return self._ask(request, journal, on_delta)

    def interrupt(self) -> None:
        """Cancel every request in flight; later ones are allowed."""
        with self._lock:
            running = list(self._running)
        for future in running:
            future.cancel()

    def close(self) -> None:
        """Cancel what runs and stop the event loop."""
        self.interrupt()
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._server.transport.close(), loop).result(timeout=5)
            loop.call_soon_threadsafe(loop.stop)

    def estimate(self, request: ChatRequest) -> Usage:
        """What one attempt may take at most, for the reservation."""
        room = request.max_output_tokens or self.settings.room or DEFAULT_OUTPUT_TOKENS
        tokens = estimate_tokens(request.messages, request.tools)
        price = self.settings.price_known()
        usd = None if price is None else price.usd(tokens, room)
        return Usage(input_tokens=tokens, output_tokens=room, usd=usd, estimated=True)

    def _ask(self, request: ChatRequest, journal: CallJournal, on_delta: DeltaSink | None) -> ChatAnswer:
        known = journal.answered(request.key)
        if known is not None:
            return known
        began, estimate = time.monotonic(), self.estimate(request)
        deadline = None if request.deadline_s is None else began + request.deadline_s
        attempt = 0
        while True:
            exchange = Exchange(request, self._server, attempt, deadline)
            journal.reserve(request, estimate)
            try:
                answer = self._run(exchange, on_delta)
            except LostAttempt as lost:
                # It may have been answered and charged: it counts in full, and a repetition needs its own reservation.
                journal.release(request, str(lost), estimate)
                attempt += 1
                if attempt > self.settings.retries:
                    raise EnvironmentFailure(self._lost_for_good(lost, attempt)) from None
            except BaseException as failure:
                words = redact(f"{type(failure).__name__}: {failure}", self._server.secrets)
                journal.release(request, words, _charge(exchange, estimate))
                raise
            else:
                answer = answer.model_copy(update={"seconds": time.monotonic() - began})
                journal.settle(request, answer)
                return answer

    def _lost_for_good(self, lost: LostAttempt, attempts: int) -> str:
        server = self._server.transport.server
        limit = f"timeout_s = {self.settings.timeout_s:.0f}, retries = {self.settings.retries}"
        return f"model {self.name!r} at {server}: {lost}, {attempts} times ({limit}); is the server up?"

    def _run(self, exchange: Exchange, on_delta: DeltaSink | None) -> ChatAnswer:
        deltas: queue.SimpleQueue[Delta | None] = queue.SimpleQueue()
        future = self._submit(exchange.run(None if on_delta is None else deltas.put))
        # Not from within the coroutine: one that is cancelled before it starts would never say that it ended.
        future.add_done_callback(lambda _: deltas.put(None))
        try:
            while on_delta is not None and (piece := deltas.get()) is not None:
                on_delta(piece)
            return future.result()
        except concurrent.futures.CancelledError:
            raise RequestCancelled(f"the request to {self.name} was cancelled") from None
        finally:
            future.cancel()
            with self._lock:
                self._running.discard(future)

    def _submit(self, work: Coroutine[object, object, ChatAnswer]) -> concurrent.futures.Future[ChatAnswer]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name=f"model {self.name}", daemon=True).start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._running.add(future)
            return future


def _charge(exchange: Exchange, estimate: Usage) -> Usage:
    """What a stopped request is charged: nothing if none was at the server, what was seen of a stream, else all."""
    if not exchange.under_way:
        return Usage(usd=0.0)
    return exchange.usage_so_far() or estimate
