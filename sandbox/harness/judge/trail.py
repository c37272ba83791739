"""What was done to one candidate and what was found, for the answer."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Trail:
    """What was done and found, for the answer."""

    checks: list[dict[str, object]] = field(default_factory=list)

    def held(self, name: str, detail: str = "") -> None:
        """A check that passed."""
        self.checks.append({"name": name, "passed": True, "detail": detail})

    def broke(self, name: str, detail: str) -> None:
        """A check that did not."""
        self.checks.append({"name": name, "passed": False, "detail": detail[:500]})
