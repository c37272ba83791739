"""Where a candidate's seconds went, by phase."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Phases:
    """Wall seconds by name, from one :meth:`end` to the next."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.monotonic)

    def end(self, name: str) -> None:
        """What was done since the last end, or since this was made, was ``name``."""
        now = time.monotonic()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    def rounded(self) -> dict[str, float]:
        """To milliseconds."""
        return {name: round(seconds, 3) for name, seconds in self.seconds.items()}
