"""What was captured: one :class:`Launch` per kernel launch, merged and turned into plain JSON at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from tilecast.sandbox.harness.evidence.recording import tensor_bytes

SEVERITY = (
    "OK",
    "SPILLS",
    "NOT_COMPILED",
    "UNAVAILABLE",
    "HOST_ERROR",
    "COMPILE_ERROR",
    "OUT_OF_RESOURCES",
    "COMPILE_TIMEOUT",
    "COMPILER_CRASH",
    "SYNTAX_ERROR",
)
_DIMENSIONS = 3


def worst(statuses: list[str]) -> str:
    """The worst of several statuses; OK of none."""
    return max(statuses, key=SEVERITY.index, default="OK")


@dataclass
class Launch:
    """One launch, and what its compilation said (``outcome`` has the fields of :class:`LaunchEvidence` that come from there)."""

    kernel: str
    language: str
    grid: list[int]
    signature: dict[str, str]
    constants: dict[str, Any]
    argument_bytes: int
    outcome: dict[str, Any]
    tuned: list[dict[str, Any]] = field(default_factory=list)
    chosen: int | None = None
    count: int = 1

    def same_as(self, other: Launch) -> bool:
        """Whether merging them loses nothing."""
        return (self.kernel, self.grid, self.signature, self.constants, self.argument_bytes) == (
            other.kernel,
            other.grid,
            other.signature,
            other.constants,
            other.argument_bytes,
        )

    def document(self, hardware: dict[str, Any] | None) -> dict[str, Any]:
        """The fields of :class:`LaunchEvidence`."""
        occupancy = self.outcome.get("occupancy")
        programs = math.prod(self.grid) if self.grid else None
        ctas = (self.outcome.get("resources") or {}).get("ctas") or 1
        waves = None
        if hardware and occupancy and programs is not None and occupancy["blocks_per_sm"]:
            waves = round(programs * ctas / (int(hardware["sms"]) * occupancy["blocks_per_sm"]), 4)
        return {
            "kernel": self.kernel,
            "language": self.language,
            "count": self.count,
            "grid": self.grid,
            "programs": programs,
            "waves": waves,
            "signature": self.signature,
            "constants": self.constants,
            "argument_bytes": self.argument_bytes,
            "tuned": self.tuned,
            "chosen": self.chosen,
            **self.outcome,
        }


class LaunchLog:
    """Launches in their order; equal ones that follow each other become one with a count."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def add(self, launch: Launch) -> None:
        """Append, or count one more of the last."""
        if self.launches and self.launches[-1].same_as(launch):
            self.launches[-1].count += 1
        else:
            self.launches.append(launch)


def grid_of(value: Any) -> list[int]:
    """A grid as three whole numbers."""
    sizes = [value] if isinstance(value, int) else list(value)
    return [int(size) for size in (*sizes, 1, 1)][:_DIMENSIONS]


def plain(value: Any) -> Any:
    """A constant as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value)[:80]


def bytes_of(values: Any) -> int:
    """One pass over all distinct tensors among launch arguments, tensor descriptors included."""
    found: dict[tuple[int, int, tuple[int, ...]], int] = {}
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            key = (value.untyped_storage()._cdata, int(value.storage_offset()), tuple(value.shape))
            found[key] = tensor_bytes(value)
        elif isinstance(value, tuple | list):
            stack.extend(value)
        elif isinstance(getattr(value, "base", None), torch.Tensor):
            stack.append(value.base)
    return sum(found.values())
