"""What a session's calls bring back: outputs in the judge's own memory, and the worker's claims about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from tilecast.sandbox.harness.tensors import BadSpec, TensorSpec
from tilecast.sandbox.harness.wire import Message


@dataclass(frozen=True)
class Claim:
    """What the worker says about one output. ``spec`` has its true strides."""

    spec: TensorSpec
    device: str
    plain: bool
    kind: str
    fits: bool
    in_input: int | None
    missing: str

    @classmethod
    def of(cls, message: Message) -> Claim:
        """Parsed strictly.

        Raises:
            BadSpec: if it is not what a worker sends.
        """
        inside = message.get("in_input")
        if inside is not None and type(inside) is not int:
            raise BadSpec("in_input must be a number")
        return cls(
            TensorSpec.from_message(message),
            str(message.get("device", ""))[:30],
            message.get("plain") is True,
            str(message.get("kind", ""))[:60],
            message.get("fits") is True,
            inside,
            str(message.get("missing", ""))[:200],
        )


@dataclass(frozen=True)
class CallResult:
    """One call. ``outputs[i]`` is the judge's private copy of the bytes that had arrived when the worker answered."""

    number: int
    outputs: list[Tensor | None]
    claims: list[Claim]
    call_ms: float
    judge_ms: float
    findings: list[dict[str, str]] = field(default_factory=list)
    rng_changed: bool = False
    looks: list[list[Tensor | None]] = field(default_factory=list)
    """Outputs of the earlier calls that were to be looked at again after this one; of each, none if it is held no more."""
    moved: list[tuple[int, str]] = field(default_factory=list)
    """Argument objects that are not as they were handed over: number of the input (-1: what is around them), and how."""
    tree: object = None
    """What was returned, as encoded: containers around the outputs."""


@dataclass(frozen=True)
class BatchResult:
    """Timed calls. Milliseconds: ``event_ms`` between CUDA events (empty on the CPU), ``wall_ms`` the worker's clock
    around each call, ``judge_ms`` the judge's own clock around the whole batch."""

    calls: list[CallResult]
    event_ms: list[float]
    wall_ms: list[float]
    judge_ms: float
    findings: list[dict[str, str]]


def moved_of(reply: Message) -> list[tuple[int, str]]:
    """Parsed strictly.

    Raises:
        BadSpec: if it is not what a worker sends.
    """
    found = reply.get("moved", [])
    if not isinstance(found, list) or not all(
        isinstance(item, list) and len(item) == 2 and type(item[0]) is int for item in found
    ):
        raise BadSpec("moved must be a list of pairs")
    return [(number, str(text)[:300]) for number, text in found[:20]]


def findings_of(reply: Message) -> list[dict[str, str]]:
    found = reply.get("findings", [])
    if not isinstance(found, list):
        return []
    return [
        {"rule": str(item.get("rule", ""))[:60], "detail": str(item.get("detail", ""))[:300]}
        for item in found[:20]
        if isinstance(item, dict)
    ]
