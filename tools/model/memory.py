"""A journal in memory, for one-shot questions and tests: limits hold, nothing survives the process."""

from __future__ import annotations

import threading

from tilecast.tools.model.base import BudgetRefused, ChatAnswer, ChatRequest, Usage


class InMemoryJournal:
    """Reserves, settles and remembers paid calls; safe to use from several threads.

    Args:
        max_tokens: limit of input plus output tokens, or None.
        max_usd: limit in dollars, or None; with an unknown price every call is refused.
    """

    def __init__(self, max_tokens: int | None = None, max_usd: float | None = None) -> None:
        self._limits = (max_tokens, max_usd)
        self._lock = threading.Lock()
        self._answers: dict[str, ChatAnswer] = {}
        self._reserved: dict[str, Usage] = {}
        self._charged: list[Usage] = []
        self.failures: list[str] = []

    @property
    def spent(self) -> Usage:
        """Sum of what was charged; ``usd`` is None as soon as one price is unknown."""
        with self._lock:
            return _sum(self._charged)

    @property
    def in_flight(self) -> int:
        """Reservations that are neither settled nor released."""
        with self._lock:
            return len(self._reserved)

    def answered(self, key: str) -> ChatAnswer | None:
        """The answer that was given to this key."""
        with self._lock:
            return self._answers.get(key)

    def reserve(self, request: ChatRequest, estimate: Usage) -> None:
        """Hold the estimate back.

        Raises:
            BudgetRefused: naming the limit that would be passed.
        """
        with self._lock:
            total = _sum([*self._charged, *self._reserved.values(), estimate])
            max_tokens, max_usd = self._limits
            if max_tokens is not None and total.tokens > max_tokens:
                raise BudgetRefused(
                    "tokens", f"about {estimate.tokens} tokens more would pass the limit of {max_tokens}"
                )
            if max_usd is not None and (total.usd is None or total.usd > max_usd):
                cost = "an unknown price" if estimate.usd is None else f"about ${estimate.usd:.4f} more"
                raise BudgetRefused("usd", f"{cost} would pass the limit of ${max_usd:.2f}")
            self._reserved[request.key] = estimate

    def settle(self, request: ChatRequest, answer: ChatAnswer) -> None:
        """Charge what was used and remember the answer."""
        with self._lock:
            self._reserved.pop(request.key, None)
            self._charged.append(answer.usage)
            self._answers[request.key] = answer

    def release(self, request: ChatRequest, reason: str, charged: Usage) -> None:
        """Give the reservation back, less what was charged all the same."""
        with self._lock:
            self._reserved.pop(request.key, None)
            self.failures.append(reason)
            if charged.tokens:
                self._charged.append(charged)


def _sum(items: list[Usage]) -> Usage:
    known = [item.usd for item in items if item.usd is not None]
    return Usage(
        input_tokens=sum(item.input_tokens for item in items),
        output_tokens=sum(item.output_tokens for item in items),
        usd=sum(known) if len(known) == len(items) else None,
    )
