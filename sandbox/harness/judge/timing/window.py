"""The window in which a comparison is made: who else was on the device, and whether its clock held still.

A leg is discarded when the clock was slowed down, stood far below the highest one seen without a power cap to explain it, or
when another process kept the device busy. What is a fact about the card's load (a power cap, a clock that moves a little) or
merely present (an idle process) is reported: kernels that draw more power than their baseline run at lower clocks for good.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilecast.sandbox.harness.judge.timing.nvml import CAPS, POWER_CAP, SLOWDOWNS, Reading

MOVED, FAR_BELOW = 0.05, 0.2
MIN_INTERVAL_S = 0.02
"""Asking costs some hundred microseconds: not oftener than this."""
BUSY_INTERVAL_S = 0.1
"""How much each process used the device is asked no oftener: it costs more, and the card's own samples lie further apart."""


class Watched(Protocol):
    """What a window needs to know; :class:`~tilecast.sandbox.harness.judge.timing.nvml.Nvml` answers on a real card."""

    def read(self) -> Reading: ...

    def busy_processes(self) -> dict[int, int] | None: ...


@dataclass
class Window:
    """Watches one comparison.

    Attributes:
        watched: the device, None where nothing can be asked (a CPU, no management library).
        own_processes: the process ids that belong to this evaluation; asked when one is on the device that was not seen before.
        why_blind: what to say where ``watched`` is None.
    """

    watched: Watched | None
    own_processes: Callable[[], Iterable[int]]
    why_blind: str = ""
    clock_s: Callable[[], float] = time.monotonic
    _last: Reading | None = None
    _last_s: float = -1e9
    _verdict: str = ""
    _clocks: list[int] = field(default_factory=list)
    _caps: Counter[str] = field(default_factory=Counter)
    _present: set[int] = field(default_factory=set)
    _moves: int = 0
    _own: set[int] = field(default_factory=set)
    _foreign: set[int] = field(default_factory=set)
    _active: list[int] = field(default_factory=list)
    _asked_s: float = -1e9

    def discard_reason(self) -> str:
        """Why the leg that just ended must not count; empty if it may."""
        if self.watched is None:
            return ""
        now = self.clock_s()
        if now - self._last_s < MIN_INTERVAL_S:
            return self._verdict
        self._last_s = now
        reading = self.watched.read()
        self._verdict = self._judge(self.watched, reading)
        self._last = reading
        self._clocks.append(reading.sm_mhz)
        self._caps.update(name for bit, name in CAPS.items() if reading.reasons & bit)
        return self._verdict

    def _judge(self, watched: Watched, reading: Reading) -> str:
        slow = [name for bit, name in SLOWDOWNS.items() if reading.reasons & bit]
        if slow:
            return f"clock throttled: {', '.join(slow)}"
        if self._last is not None and self._last.sm_mhz > 0 and reading.sm_mhz > 0:
            self._moves += abs(reading.sm_mhz / self._last.sm_mhz - 1) > MOVED
        highest = max(self._clocks, default=0)
        if 0 < reading.sm_mhz < (1 - FAR_BELOW) * highest and not reading.reasons & POWER_CAP:
            return f"the SM clock was more than {FAR_BELOW:.0%} below its highest"
        return self._others(watched, reading)

    def _others(self, watched: Watched, reading: Reading) -> str:
        if not reading.processes <= self._own | self._foreign:  # reading /proc costs milliseconds
            self._own = set(self.own_processes())
            self._foreign = set(reading.processes - self._own)
        if reading.processes and not reading.processes & self._own:
            return ""  # Process ids of another namespace: nothing can be told apart.
        others = reading.processes - self._own
        self._present |= others
        if not others:
            return ""
        if self._last_s - self._asked_s >= BUSY_INTERVAL_S:
            self._asked_s = self._last_s
            busy = watched.busy_processes() or {}
            self._active = sorted(pid for pid, percent in busy.items() if percent > 0)
        active = [pid for pid in self._active if pid in others]
        return f"another process kept the device busy (pid {', '.join(map(str, active))})" if active else ""

    def report(self) -> dict[str, Any]:
        """What was seen, for the record."""
        if self.watched is None:
            return {"watched": False, "why": self.why_blind}
        seen = [clock for clock in self._clocks if clock > 0]
        return {
            "watched": True,
            "sm_mhz": {"low": min(seen), "high": max(seen)} if seen else None,
            "clock_moves": self._moves,
            "limited_by": dict(self._caps),
            "other_processes": sorted(self._present),
            "readings": len(self._clocks),
        }


def own_processes() -> set[int]:
    """This process and all below it, from /proc."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found
