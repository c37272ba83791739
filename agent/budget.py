"""The ledger: reserve before spending, settle after, stop hard at a limit. Pure logic; the clock is handed in.

Five meters: evaluations, device seconds, tokens, dollars, minutes. Nothing is started that does not fit in what is left
after everything already reserved, so that ``spent <= limit`` holds, plus at most what was in flight when a process was killed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilecast.sandbox.schema import LedgerDocument, Meter
from tilecast.tools.model.base import BudgetRefused

MeterName = Literal["evals", "gpu_seconds", "tokens", "usd", "minutes"]
METERS: tuple[MeterName, ...] = ("evals", "gpu_seconds", "tokens", "usd", "minutes")
WARN_AT = (50, 80)
"""Percent of a limit at which the user is told, once each."""

FLAGS: dict[MeterName, str] = {name: f"--max-{name.replace('_', '-')}" for name in METERS}
_SLACK = 1e-9
"""Relative slack for sums of floats, so that ten times 0.1 fits in 1.0."""


@dataclass(frozen=True)
class Amount:
    """What something costs. ``usd`` is None where the price is unknown, and stays None in every sum."""

    evals: int = 0
    gpu_seconds: float = 0.0
    tokens: int = 0
    usd: float | None = 0.0

    def __add__(self, other: Amount) -> Amount:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Amount(self.evals + other.evals, self.gpu_seconds + other.gpu_seconds, self.tokens + other.tokens, usd)

    def of(self, meter: MeterName) -> float | None:
        """The figure of one meter; minutes are not part of an amount and are 0."""
        return {"evals": self.evals, "gpu_seconds": self.gpu_seconds, "tokens": self.tokens, "usd": self.usd}.get(
            meter, 0.0
        )


@dataclass(frozen=True)
class Limits:
    """Most that may be spent of each meter; None is no limit."""

    evals: float | None = None
    gpu_seconds: float | None = None
    tokens: float | None = None
    usd: float | None = None
    minutes: float | None = None

    def of(self, meter: MeterName) -> float | None:
        """The limit of one meter."""
        value: float | None = getattr(self, meter)
        return value

    def as_dict(self) -> dict[str, float | None]:
        """By meter."""
        return {meter: self.of(meter) for meter in METERS}

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return any(self.of(meter) is not None for meter in METERS)


@dataclass
class _State:
    spent: Amount
    reserved: dict[str, Amount] = field(default_factory=dict)
    warned: set[tuple[MeterName, int]] = field(default_factory=set)


class Ledger:
    """Meters of one run, safe to use from several threads.

    Args:
        limits: what may be spent.
        clock: seconds that only grow; ``time.monotonic`` outside tests.
        spent: what the run has spent before (a resumed run).
        minutes_before: minutes that the run has taken before.
    """

    def __init__(
        self, limits: Limits, clock: Callable[[], float], spent: Amount | None = None, minutes_before: float = 0.0
    ) -> None:
        self.limits, self._clock = limits, clock
        self._began_s, self._minutes_before = clock(), minutes_before
        self._lock = threading.RLock()
        self._state = _State(spent or Amount())
        self.warnings()  # what an earlier session has passed was said there

    @property
    def minutes(self) -> float:
        """Minutes of the run, all its sessions together."""
        return self._minutes_before + (self._clock() - self._began_s) / 60

    @property
    def spent(self) -> Amount:
        """Settled so far."""
        with self._lock:
            return self._state.spent

    @property
    def reserved(self) -> Amount:
        """Sum of what is in flight."""
        with self._lock:
            return sum(self._state.reserved.values(), Amount())

    def left(self, meter: MeterName) -> float:
        """What may still be reserved; infinite without a limit, never negative."""
        limit = self.limits.of(meter)
        if limit is None:
            return math.inf
        if meter == "minutes":
            return max(0.0, limit - self.minutes)
        with self._lock:
            spent, reserved = self._state.spent.of(meter), self.reserved.of(meter)
        if spent is None or reserved is None:
            return 0.0
        return max(0.0, limit - spent - reserved)

    def blocked_by(self, amount: Amount, minutes: float = 0.0) -> MeterName | None:
        """The first meter in which ``amount`` (and ``minutes`` of time) does not fit, or None if it fits."""
        with self._lock:
            for meter in METERS:
                limit = self.limits.of(meter)
                if limit is None:
                    continue
                wanted = minutes if meter == "minutes" else amount.of(meter)
                left = self.left(meter)
                # A meter that is used up blocks whatever draws on it, however little; time draws on minutes always.
                used_up = left <= 0 and (meter == "minutes" or (meter == "gpu_seconds" and amount.evals > 0))
                if wanted is None or wanted > left + _SLACK * limit or used_up:
                    return meter
        return None

    def reserve(self, key: str, amount: Amount, minutes: float = 0.0) -> None:
        """Set ``amount`` aside under ``key`` before anything is started.

        Raises:
            BudgetRefused: naming the meter, what is left, what was wanted and the flag that raises the limit.
            ValueError: if ``key`` is already reserved.
        """
        with self._lock:
            if key in self._state.reserved:
                raise ValueError(f"{key!r} is already reserved")
            meter = self.blocked_by(amount, minutes)
            if meter is not None:
                raise BudgetRefused(meter, self._refusal(meter, amount, minutes))
            self._state.reserved[key] = amount

    def settle(self, key: str, actual: Amount) -> None:
        """Replace a reservation by what was really spent.

        Raises:
            KeyError: if nothing is reserved under ``key``.
        """
        with self._lock:
            del self._state.reserved[key]
            self._state.spent = self._state.spent + actual

    def charge(self, actual: Amount) -> None:
        """Spend without a reservation: set-up work whose cost is only known afterwards."""
        with self._lock:
            self._state.spent = self._state.spent + actual

    def holds(self, key: str) -> bool:
        """Whether something is reserved under ``key``."""
        with self._lock:
            return key in self._state.reserved

    def warnings(self) -> list[MeterName]:
        """Meters that passed a mark (50 or 80 percent) since the last call; each mark is reported once."""
        found: list[MeterName] = []
        with self._lock:
            for meter in METERS:
                share = self._share(meter)
                passed = [mark for mark in WARN_AT if share >= mark / 100 and (meter, mark) not in self._state.warned]
                self._state.warned.update((meter, mark) for mark in passed)
                if passed:
                    found.append(meter)
        return found

    def document(self) -> LedgerDocument:
        """The contract's ``ledger``."""
        spent = self.spent
        values = {meter: Meter(spent=spent.of(meter), limit=self.limits.of(meter)) for meter in METERS}
        values["minutes"] = Meter(spent=self.minutes, limit=self.limits.minutes)
        return LedgerDocument(**values)

    def _share(self, meter: MeterName) -> float:
        limit = self.limits.of(meter)
        spent = self.minutes if meter == "minutes" else self._state.spent.of(meter)
        return 0.0 if limit is None or spent is None else spent / limit

    def _refusal(self, meter: MeterName, amount: Amount, minutes: float) -> str:
        wanted = minutes if meter == "minutes" else amount.of(meter)
        if wanted is None:
            return f"usd: the price is unknown, so {FLAGS[meter]} cannot be kept; set prices for the model"
        limit = self.limits.of(meter)
        return f"{meter}: {wanted:.4g} wanted, {self.left(meter):.4g} of {limit:.4g} left; raise {FLAGS[meter]}"


@dataclass(frozen=True)
class PerCandidate:
    """Expected cost of one candidate and of getting ready, and in words where the figures come from.

    ``aside_tokens`` and ``aside_usd`` are what is set aside while one is asked for: at least that much must be left.
    """

    gpu_seconds: float
    tokens: int = 0
    usd: float | None = 0.0
    minutes: float = 0.0
    setup_gpu_seconds: float = 0.0
    aside_tokens: int = 0
    aside_usd: float | None = 0.0
    basis: str = "assumed"


@dataclass(frozen=True)
class Plan:
    """What a budget buys: candidates (None is no end), the meter that ends it, and the expected spend on them."""

    candidates: int | None
    limited_by: MeterName | None
    expected: Amount
    minutes: float
    basis: str


def plan(limits: Limits, cost: PerCandidate, at_most: int | None = None) -> Plan:
    """How many candidates fit in the limits, by the expected cost of each.

    Args:
        limits: the budget.
        cost: of one candidate, and of set-up.
        at_most: number of candidates there are at all, where that is known (a recorded set, a finite space).
    """
    each: Mapping[MeterName, float] = {
        "evals": 1,
        "gpu_seconds": cost.gpu_seconds,
        "tokens": cost.tokens,
        "usd": cost.usd or 0.0,
        "minutes": cost.minutes,
    }
    held: Mapping[MeterName, float] = {
        "gpu_seconds": cost.setup_gpu_seconds,
        "tokens": max(0, cost.aside_tokens - cost.tokens),
        "usd": max(0.0, (cost.aside_usd or 0.0) - (cost.usd or 0.0)),
    }
    count, limited_by = (math.inf if at_most is None else float(at_most)), None
    for meter in METERS:
        limit = limits.of(meter)
        if limit is None or each[meter] <= 0:
            continue
        free = limit - held.get(meter, 0.0)
        fits = max(0, math.floor(free / each[meter] * (1 + _SLACK)))
        if fits < count:
            count, limited_by = fits, meter
    bought = None if math.isinf(count) else int(count)
    spend = Amount(
        evals=bought or 0,
        gpu_seconds=cost.setup_gpu_seconds + cost.gpu_seconds * (bought or 0),
        tokens=cost.tokens * (bought or 0),
        usd=None if cost.usd is None else cost.usd * (bought or 0),
    )
    return Plan(bought, limited_by, spend, cost.minutes * (bought or 0), cost.basis)
