"""The worker's part of timing: legs of calls, made as in verification, each output copied out as soon as its call returned.

What comes back are raw observations. The judge holds them against its own clock, and reads outputs from its own memory.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tilecast.sandbox.harness.tensors import bytes_in
from tilecast.sandbox.harness.wire import Message
from tilecast.sandbox.harness.worker import failures, guards
from tilecast.sandbox.harness.worker.calling import Caller, take_out
from tilecast.sandbox.harness.worker.device_clock import DeviceClock, DeviceClockError
from tilecast.sandbox.harness.worker.traffic import compulsory_traffic

_NOW_NS = time.perf_counter_ns
_SUM = torch._C.TensorBase.sum
_MANUAL_SEED = torch.manual_seed
_Call = tuple[list[Any], list[Tensor], list[Message], int | None]
"""Arguments of ``forward``, the tensors among them, room for outputs, seed (None where the reference draws nothing)."""


class TimingHandlers:
    """Operations ``leg``, ``compile``, ``pin``, ``resources`` and ``traffic`` of a worker."""

    def __init__(self, caller: Caller, device: torch.device) -> None:
        self.caller, self.device = caller, device
        # Bound before any user code is imported.
        self._clock = DeviceClock() if device.type == "cuda" else None
        self._queueing_ns: list[int] = []
        """What the host took to queue each call of the last leg."""

    def handlers(self) -> dict[str, Callable[[Message], Message]]:
        """By operation name."""
        return {
            "leg": self.leg,
            "compile": self.compile,
            "pin": self.pin,
            "resources": self.resources,
            "traffic": self.traffic,
        }

    def leg(self, message: Message) -> Message:
        """Make the calls listed. ``mode``: ``cold`` (cache flushed before each), ``warm`` (inputs read before each), ``empty``
        (everything but the call). ``module``: whose calls, the constructed one.

        Returns:
            ``inner_ns`` a call (events on CUDA, else the monotonic clock), ``leg_ns`` around all of them, claims about the
            outputs, and what changed in the process meanwhile.
        """
        empty = message["mode"] == "empty"
        calls = [(*self.caller.inputs(item), list(item["spaces"]), item.get("seed")) for item in message["calls"]]
        stand_ins = [_stand_in(space, self.device) for space in calls[0][2]] if empty else []
        call = (lambda *_: stand_ins) if empty else self.caller.require_module()
        before = guards.CallState.take(self.device.type == "cuda")
        with torch.no_grad():
            start_ns = _NOW_NS()
            results, inner_ns = (
                self._host_leg(call, calls)
                if self._clock is None
                else self._device_leg(self._clock, call, calls, message)
            )
            leg_ns = _NOW_NS() - start_ns
        changes = before.changes(guards.CallState.take(self.device.type == "cuda"))
        return {
            "inner_ns": inner_ns,
            "leg_ns": leg_ns,
            "queueing_ns": sorted(self._queueing_ns)[len(self._queueing_ns) * 4 // 5] if self._queueing_ns else 0,
            "joined_by_synchronising": self._clock.synchronised_joins if self._clock else 0,
            "calls": results,
            "findings": [] if empty else [item.to_message() for item in changes[:10]],
        }

    def _host_leg(self, call: Callable[..., Any], calls: list[_Call]) -> tuple[list[Message], list[int]]:
        results, times = [], []
        for item in calls:
            arguments = item[0]
            _seed(item)
            start_ns = _NOW_NS()
            value = call(*arguments)
            times.append(_NOW_NS() - start_ns)
            results.append(_take(value, item, self.caller, None))
        return results, times

    def _device_leg(
        self, clock: DeviceClock, call: Callable[..., Any], calls: list[_Call], message: Message
    ) -> tuple[list[Message], list[int]]:
        results: list[Message] = []
        flush_bytes, flushes = int(message.get("flush_bytes", 0)), int(message.get("flushes", 1))
        self._queueing_ns = []
        try:
            clock.prepare(len(calls), flush_bytes)
            for index, item in enumerate(calls):
                arguments = item[0]
                _seed(item)
                clock.synchronize()
                clock.forget_persisting_lines()
                # Several, so that the device is still busy when the call is queued: its waiting for the host is not timed.
                clock.flush(index, flushes)
                if message["mode"] == "warm":
                    _touch(item[1])
                queued_ns = _NOW_NS()
                clock.start(index)
                value = call(*arguments)
                clock.stop(index)
                self._queueing_ns.append(_NOW_NS() - queued_ns)
                results.append(_take(value, item, self.caller, 0))
            clock.synchronize()
            return results, [int(clock.elapsed_ms(index) * 1e6) for index in range(len(calls))]
        except DeviceClockError as error:
            raise failures.Failure("RUNTIME_ERROR", f"while calls were timed: {error}") from error

    def compile(self, message: Message) -> Message:
        """From now on the constructed module runs through ``torch.compile`` in this mode; it compiles at its first call."""
        compiled = torch.compile(self.caller.require_module(), mode=str(message["mode"]), dynamic=False)
        self.caller.module = cast(torch.nn.Module, compiled)
        return {}

    def traffic(self, message: Message) -> Message:
        """The least bytes of one forward of the constructed module (the reference's), on copies of the inputs."""
        arguments, _ = self.caller.inputs(message)
        copies = tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, arguments)
        found = dict(compulsory_traffic(self.caller.require_module(), copies))
        if self._clock is not None:
            self._clock.synchronize()  # the inputs are the judge's again once it has the answer
        return found

    def pin(self, message: Message) -> Message:
        """Keep every thread of this process, and those it will start, on the processors named."""
        wanted = {int(item) for item in list(message["cpus"])}
        for task in os.listdir("/proc/self/task"):
            try:
                os.sched_setaffinity(int(task), wanted)
            except OSError as error:
                return {"pinned": False, "why": str(error)}
        guards.pinned(os.sched_getaffinity(0))  # fewer, where this process may not use all of those
        return {"pinned": True}

    def resources(self, message: Message) -> Message:
        """What the compiler gave the Triton kernels that ran in this process: a claim, for the reader only."""
        found: dict[str, Message] = {}
        for function in _jit_functions():
            for kernel in _compiled(function):
                metadata = kernel.metadata
                name = str(getattr(metadata, "name", "kernel"))[:120]
                found[f"{name}/{len(found)}"] = {
                    "name": name,
                    "regs": _count(getattr(kernel, "n_regs", None)),
                    "spills": _count(getattr(kernel, "n_spills", None)),
                    "shared": _count(getattr(metadata, "shared", None)),
                    "warps": _count(getattr(metadata, "num_warps", None)),
                    "stages": _count(getattr(metadata, "num_stages", None)),
                }
        return {"kernels": list(found.values())[:32]}


def _take(value: Any, call: _Call, caller: Caller, stream: int | None) -> Message:
    """Copy outputs out before anything else happens, then say what they look like; the objects are not kept."""
    _, inputs, spaces, _ = call
    return take_out(value, inputs, spaces, caller.memory, stream)[0]


def _seed(call: _Call) -> None:
    if call[3] is not None:
        _MANUAL_SEED(int(call[3]))


def _stand_in(space: Message, device: torch.device) -> Tensor:
    size = int(space["expected"] if "expected" in space else space["size"])
    return torch.zeros(size, dtype=torch.uint8, device=device)


def _touch(tensors: list[Tensor]) -> None:
    """Read every input, so that as much of it as fits lies in the cache."""
    for tensor in tensors:
        if tensor.numel():
            _SUM(bytes_in(tensor), dtype=torch.int64)


def _jit_functions() -> list[Any]:
    jit = sys.modules.get("triton.runtime.jit")
    if jit is None:
        return []
    kinds = jit.JITFunction
    modules = [
        module for name, module in list(sys.modules.items()) if not name.startswith(("torch", "triton", "tilecast"))
    ]
    values = [value for module in modules for value in list(getattr(module, "__dict__", {}).values())]
    # Autotuned and heuristic kernels wrap the function that was compiled.
    unwrapped = [getattr(value, "fn", value) if not isinstance(value, kinds) else value for value in values]
    return list({id(value): value for value in unwrapped if isinstance(value, kinds)}.values())


def _compiled(function: Any) -> list[Any]:
    caches = getattr(function, "device_caches", None)
    if not isinstance(caches, dict):
        return []
    found = []
    for entry in caches.values():
        table = entry[0] if isinstance(entry, tuple) and entry else entry
        if isinstance(table, dict):
            found += [kernel for kernel in table.values() if hasattr(kernel, "metadata")]
    return found


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
