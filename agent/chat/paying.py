"""Paid questions of a session: set aside in ledger and log before they are sent; and time that counts only while working."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilecast.agent.budget import Amount, Ledger
from tilecast.agent.chat import events as ev
from tilecast.agent.chat.sessions import SessionLog
from tilecast.agent.record.events import CallAnswered, CallReleased
from tilecast.agent.record.fold import amount_of
from tilecast.tools.model.base import BudgetRefused, ChatAnswer, ChatRequest, Usage


class WorkClock:
    """Seconds spent working. A user who thinks, or is at lunch, spends nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._before_s, self._began_s = clock, 0.0, clock()
        self._running = False

    def __call__(self) -> float:
        """Seconds so far."""
        return self._before_s + (self._clock() - self._began_s if self._running else 0.0)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Time counts inside."""
        if self._running:
            yield
            return
        self._began_s, self._running = self._clock(), True
        try:
            yield
        finally:
            self._before_s, self._running = self(), False


class SessionJournal:
    """Implements :class:`tilecast.tools.model.base.CallJournal` on a session's log and ledger.

    Args:
        log: of the session.
        ledger: of the session.
        more: asked when a limit is reached; True if it was raised.
    """

    def __init__(self, log: SessionLog, ledger: Ledger, more: Callable[[BudgetRefused], bool]) -> None:
        self._log, self._ledger, self._more = log, ledger, more

    def answered(self, key: str) -> ChatAnswer | None:
        """Never: an answer that was given is in the conversation, and its question is not asked again."""
        return None

    def reserve(self, request: ChatRequest, estimate: Usage) -> None:
        """Set aside what the question may cost.

        Raises:
            BudgetRefused: if it does not fit and the limit was not raised.
        """
        while True:
            try:
                self._ledger.reserve(request.key, amount_of(estimate))
                break
            except BudgetRefused as refused:
                if not self._more(refused):
                    raise
        self._log.append(ev.CallReserved(key=request.key, estimate=estimate))

    def settle(self, request: ChatRequest, answer: ChatAnswer) -> None:
        """Record the answer, then count what it cost."""
        self._log.append(CallAnswered(key=request.key, answer=answer))
        self._ledger.settle(request.key, amount_of(answer.usage))

    def release(self, request: ChatRequest, reason: str, charged: Usage) -> None:
        """Record a failure; only what was charged is counted."""
        self._log.append(CallReleased(key=request.key, reason=reason, charged=charged))
        self._ledger.settle(request.key, amount_of(charged))


def charge_lost(log: SessionLog) -> Amount:
    """What was in flight when the last process ended is charged as reserved; gives the sum of it."""
    before = log.state.spent
    for key, estimate in list(log.state.open_calls.items()):
        log.append(CallReleased(key=key, reason="lost when the process ended", charged=estimate))
    if log.state.open_reserved.evals:
        log.append(ev.StepLost())
    spent = log.state.spent
    usd = None if spent.usd is None or before.usd is None else spent.usd - before.usd
    return Amount(spent.evals - before.evals, spent.gpu_seconds - before.gpu_seconds, spent.tokens - before.tokens, usd)
