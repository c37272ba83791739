"""What runs of the reference bring: values in its own precision, what else they do, the truth in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from tilecast.sandbox.harness.judge.oracle import RawOutputs
from tilecast.sandbox.harness.tensors import TensorSpec
from tilecast.sandbox.harness.wire import Message


@dataclass
class Contract:
    """What the reference does beside returning values, as observed on clones: the only side effects allowed."""

    written_inputs: set[int] = field(default_factory=set)
    written_state: set[str] = field(default_factory=set)
    aliases: set[tuple[int, int]] = field(default_factory=set)
    consumes_rng: bool = False
    changes_containers: bool = False
    """A list or dict among the arguments is not as it was afterwards."""

    def include(self, effects: Message) -> None:
        """Widen by what one run showed."""
        self.written_inputs |= set(effects["inputs"])
        self.written_state |= set(effects["state"])
        self.aliases |= {(int(a), int(b)) for a, b in effects["aliases"]}
        self.consumes_rng = self.consumes_rng or bool(effects["consumes_rng"])
        self.changes_containers = self.changes_containers or bool(effects["changes_containers"])

    def to_message(self, state_order: Sequence[str]) -> Message:
        """The written inputs and state, in the order in which their values are reported."""
        return {
            "inputs": sorted(self.written_inputs),
            "state": [name for name in state_order if name in self.written_state],
        }


@dataclass(frozen=True)
class NativeRun:
    """One run: ``values`` are the outputs, then inputs it wrote to, then state it wrote to."""

    values: list[Tensor]
    outputs: int
    overlaps: tuple[bool, ...]
    effects: Message
    tree: Message
    raw: RawOutputs | None = None
    """The float64 truth, where it came in the same answer."""

    @property
    def specs(self) -> list[TensorSpec]:
        """Of the outputs alone."""
        return [TensorSpec.dense(tuple(v.shape), v.dtype) for v in self.values[: self.outputs]]


def raw_outputs(native: list[Tensor], values: list[Tensor], reply: Message) -> RawOutputs:
    """What the worker holds of a float64 run (``ReferenceHandlers._truth``), put in its places."""
    rest = iter(values)
    truth = [next(rest) for _ in native]
    spread = [next(rest) if present else None for present in reply["spread"]]
    alternates = [[next(rest) for _ in range(count)] for count in reply["alternates"]]
    method, reduction = str(reply["method"]), int(reply["reduction"])
    return RawOutputs(native, truth, spread, alternates, method, reduction, bool(reply["products"]))
