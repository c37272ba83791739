"""What a worker reports against its own candidate: evidence, since nobody forges any against himself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that changed: the rule and the evidence in words."""

    rule: str
    detail: str

    def to_message(self) -> dict[str, str]:
        """As plain JSON."""
        return {"rule": self.rule, "detail": self.detail[:300]}
