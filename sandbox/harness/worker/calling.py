"""Calls of ``forward``: on inputs in the judge's memory, outputs exported at once, state watched around each.

Single calls and timed ones are built from the same pieces and look alike to a candidate: same caller, same kinds of
tensors, same grad mode.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.tensors import decode_tree, encode_outputs
from tilecast.sandbox.harness.wire import Message
from tilecast.sandbox.harness.worker import export, failures, guards, poison
from tilecast.sandbox.harness.worker.memory import Memory
from tilecast.sandbox.harness.worker.side_effects import Given, HandedOut, registered

_NOW_NS = time.perf_counter_ns
_EVENT = torch.cuda.Event
_SYNCHRONIZE = torch.cuda.synchronize
_MANUAL_SEED = torch.manual_seed
MAX_OUTPUTS = 64


@dataclass
class _Slot:
    """A module under its name, and what is kept about it."""

    module: torch.nn.Module | None = None
    set_from_outside: set[str] = field(default_factory=set)
    """Names in its state whose values are the judge's."""
    generators: guards.HostGenerators = field(default_factory=guards.HostGenerators)
    """Each module may set a seed when it is first called, none at every call."""


class Caller:
    """Owns the constructed module, reused input objects and the outputs that are held for a later look."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.cuda = memory.device.type == "cuda"
        self.source: ModuleType | None = None
        self.module: torch.nn.Module | None = None
        self._slot = _Slot()
        self._slots: dict[str, _Slot] = {}
        self._objects: dict[str, Tensor] = {}
        self._held: deque[tuple[int, list[Tensor]]] = deque()
        self._handed_out = HandedOut()
        self._flush: Tensor | None = None

    def require_module(self) -> torch.nn.Module:
        """The constructed module.

        Raises:
            failures.Failure: if nothing was constructed.
        """
        if self.module is None:
            raise failures.Failure("ENVIRONMENT_ERROR", "nothing is constructed yet")
        return self.module

    def put(self, slot: str, module: torch.nn.Module) -> None:
        """Keep a module under a name, and use it."""
        self._slot = self._slots[slot] = _Slot(module)
        self.module = module

    def use(self, message: Message) -> Message:
        """Go back to the module of a slot."""
        self._slot = self._slots[str(message["slot"])]
        self.module = self._slot.module
        return {}

    def was_set(self, names: Iterable[str]) -> None:
        """The judge has set these entries of the module's state."""
        self._slot.set_from_outside.update(names)

    def _judges_state(self, module: torch.nn.Module) -> list[Tensor]:
        names = self._slot.set_from_outside
        return [item for name, item in registered(module) if name in names] if names else []

    def inputs(self, message: Message) -> tuple[list[Any], list[Tensor]]:
        """Arguments of ``forward`` and the tensors among them; ``object`` names a tensor object to be used again."""
        tensors = []
        for item, fresh in zip(message["tensors"], self.memory.tensors(message["tensors"]), strict=True):
            key = item.get("object")
            tensors.append(fresh if key is None else self._objects.setdefault(str(key), fresh))
        return list(decode_tree(message["inputs"], tensors)), tensors

    def call(self, message: Message) -> Message:
        """One call. Reply: claims about each output, where its bytes are, nanoseconds, what changed around it."""
        module = self.require_module()
        arguments, tensors = self.inputs(message)
        if message.get("poison") is not None:
            poison.fill_free_memory(int(message["poison"]), message["spaces"], self.memory.device)
        if message.get("seed") is not None:
            _MANUAL_SEED(int(message["seed"]))
        stream = torch.cuda.current_stream().cuda_stream if self.cuda else None
        given, generators = Given(arguments, tensors), self._slot.generators
        drawn = generators.advance()
        before = guards.CallState.take(self.cuda) if message.get("watch", True) else None
        with torch.no_grad():
            start_ns = _NOW_NS()
            result = module(*arguments)
            end_ns = _NOW_NS()
        reply, outputs = take_out(result, tensors, message["spaces"], self.memory, stream)
        if self.cuda:
            _SYNCHRONIZE()
        reply["call_ns"], reply["moved"] = end_ns - start_ns, given.moved()
        if before is not None:
            after = guards.CallState.take(self.cuda)
            found = [*before.changes(after), *generators.set_again(drawn)]
            reply["findings"] = [item.to_message() for item in found[:10]]
            reply["rng_changed"] = before.rng_changed(after)
        if message.get("scribble"):
            for tensor, claim in zip(outputs, reply["outputs"], strict=True):
                if claim["in_input"] is None:
                    export.scribble(tensor)
        else:
            self._handed_out.add(outputs, reply["outputs"], self._judges_state(module))
        reply["looks"] = self._look(message.get("looks", []))
        self._hold(int(message.get("hold", 0)), int(message["seq"]), outputs)
        return reply

    def _hold(self, count: int, number: int, outputs: list[Tensor]) -> None:
        self._held.append((number, outputs))
        while len(self._held) > count:
            self._held.popleft()

    def recheck(self, message: Message) -> Message:
        """Copy the outputs of earlier calls once more."""
        return {"looks": self._look(message["looks"])}

    def _look(self, looks: list[Message]) -> list[list[Message]]:
        stream = torch.cuda.current_stream().cuda_stream if self.cuda and looks else None
        found = []
        for look in looks:
            outputs = next((outputs for number, outputs in self._held if number == look["call"]), [])
            spaces = [self.memory.space(item) for item in look["spaces"]]
            found.append([export.export(t, space, stream) for t, space in zip(outputs, spaces, strict=False)])
        if self.cuda and looks:
            _SYNCHRONIZE()
        return found

    def forget(self, message: Message) -> Message:
        """Drop held outputs and reused input objects. Reply: outputs of long ago that have changed since."""
        self._held.clear()
        self._objects.clear()
        return {"findings": [item.to_message() for item in self._handed_out.changes()]}

    def many(self, message: Message) -> Message:
        """Timed calls, one after the other; see the judge's ``Session.call_many`` for what comes back."""
        module = self.require_module()
        calls = [(*self.inputs(item), item["spaces"]) for item in message["calls"]]
        sync_each, flush_bytes = bool(message.get("sync_each")), int(message.get("flush_bytes", 0))
        stream = torch.cuda.current_stream().cuda_stream if self.cuda else None
        walls: list[int] = []
        events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        replies: list[Message] = []
        kept: list[list[Tensor]] = []
        given = [Given(arguments, tensors) for arguments, tensors, _ in calls]
        before = guards.CallState.take(self.cuda)
        with torch.no_grad():
            for arguments, tensors, spaces in calls:
                if flush_bytes:
                    self._flush_cache(flush_bytes)
                if sync_each and self.cuda:
                    _SYNCHRONIZE()
                start_ns = _NOW_NS()
                pair = self._start_event() if self.cuda else None
                result = module(*arguments)
                if pair is not None:
                    pair[1].record()
                    events.append(pair)
                if sync_each and self.cuda:
                    _SYNCHRONIZE()
                walls.append(_NOW_NS() - start_ns)
                reply, outputs = take_out(result, tensors, spaces, self.memory, stream)
                kept.append(outputs)
                replies.append(reply)
        if self.cuda:
            _SYNCHRONIZE()
        findings = before.changes(guards.CallState.take(self.cuda))
        state = self._judges_state(module)
        for reply, outputs, item in zip(replies, kept, given, strict=True):
            reply["moved"] = item.moved()
            self._handed_out.add(outputs, reply["outputs"], state)
        self._held.clear()
        self._held.extend((int(message["seq"]) * 1000 + index, outputs) for index, outputs in enumerate(kept))
        return {
            "calls": replies,
            "wall_ns": walls,
            "event_ms": [start.elapsed_time(end) for start, end in events],
            "findings": [item.to_message() for item in findings[:10]],
        }

    @staticmethod
    def _start_event() -> tuple[torch.cuda.Event, torch.cuda.Event]:
        pair = (_EVENT(enable_timing=True), _EVENT(enable_timing=True))  # type: ignore[no-untyped-call]
        pair[0].record()
        return pair

    def _flush_cache(self, size: int) -> None:
        """Overwrite a buffer larger than the last-level cache, so that inputs come from memory."""
        if self._flush is None or self._flush.numel() != size:
            self._flush = torch.empty(size, dtype=torch.uint8, device=self.memory.device)
        self._flush.zero_()


def take_out(
    result: Any, inputs: list[Tensor], spaces: list[Message], memory: Memory, stream: int | None
) -> tuple[Message, list[Tensor]]:
    """Outputs into their spaces before anything else is done with them; then what they look like, and the objects.

    Raises:
        Failure: INCORRECT_SHAPE if there are more than anybody reads.
    """
    found: list[Tensor] = []
    with torch._C.DisableTorchFunction():
        tree = encode_outputs(result, found)
    if len(found) > MAX_OUTPUTS:
        raise failures.Failure("INCORRECT_SHAPE", f"{len(found)} output tensors, at most {MAX_OUTPUTS} are read")
    placed = [
        export.export(tensor, memory.space(spaces[index]), stream) if index < len(spaces) else {"missing": "no space"}
        for index, tensor in enumerate(found)
    ]
    claims = [{**export.report(tensor, inputs), **where} for tensor, where in zip(found, placed, strict=True)]
    return {"tree": tree, "outputs": claims}, found
