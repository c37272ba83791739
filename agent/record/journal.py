"""The journal of paid calls: reserved in ledger and record before anything is sent, settled durably after."""

from __future__ import annotations

import json

from tilecast.agent.budget import Ledger
from tilecast.agent.record.events import CallAnswered, CallLost, CallReleased, CallReserved
from tilecast.agent.record.fold import amount_of
from tilecast.agent.record.store import RunLog, text_sha256
from tilecast.tools.model.base import ChatAnswer, ChatRequest, Usage


class RunJournal:
    """Implements :class:`tilecast.tools.model.base.CallJournal` on a run's log and ledger."""

    def __init__(self, log: RunLog, ledger: Ledger) -> None:
        self._log, self._ledger = log, ledger

    def answered(self, key: str) -> ChatAnswer | None:
        """The recorded answer to ``key``, if there is one."""
        seq = self._log.state.answered_seq.get(key)
        return None if seq is None else self._log.answer(seq).answer

    def reserve(self, request: ChatRequest, estimate: Usage) -> None:
        """Set aside what the request may cost, and record that it is about to be sent.

        Raises:
            BudgetRefused: if it does not fit in what is left.
        """
        with self._log.lock:
            self._ledger.reserve(_name(request.key), amount_of(estimate))
            asked = json.dumps(request.messages, ensure_ascii=False, default=str)
            self._log.append(
                CallReserved(key=request.key, purpose=request.purpose, request=text_sha256(asked), estimate=estimate),
                texts=[asked],
            )

    def settle(self, request: ChatRequest, answer: ChatAnswer) -> None:
        """Record the answer, then count what it cost."""
        with self._log.lock:
            self._log.append(CallAnswered(key=request.key, answer=answer))
            self._ledger.settle(_name(request.key), amount_of(answer.usage))

    def release(self, request: ChatRequest, reason: str, charged: Usage) -> None:
        """Record a failure; only what was charged is counted."""
        with self._log.lock:
            self._log.append(CallReleased(key=request.key, reason=reason, charged=charged))
            self._ledger.settle(_name(request.key), amount_of(charged))

    def lose_open(self) -> int:
        """Charge every request that is still open as lost; returns their number. Nobody waits for them any more."""
        with self._log.lock:
            lost = dict(self._log.state.open_calls)
            for key, estimate in lost.items():
                self._log.append(CallLost(key=key, charged=estimate))
                if self._ledger.holds(_name(key)):
                    self._ledger.settle(_name(key), amount_of(estimate))
            return len(lost)


def _name(key: str) -> str:
    return f"call:{key}"
