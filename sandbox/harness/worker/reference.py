"""What only the reference's worker does: draw inputs, run as KernelBench does, observe its own side effects, take the truth.

Small results go into the room that a request offers; others are held here until the judge, knowing their sizes, asks for the
bytes (``take``).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.arena import ALIGNMENT
from tilecast.sandbox.harness.device_memory import give_back
from tilecast.sandbox.harness.tensors import (
    TensorSpec,
    decode_tree,
    encode_outputs,
    encode_tree,
    outputs_in,
    packed,
    place,
)
from tilecast.sandbox.harness.wire import Message
from tilecast.sandbox.harness.worker import describing, failures
from tilecast.sandbox.harness.worker.calling import Caller
from tilecast.sandbox.harness.worker.copies import (
    aliases_of,
    clone_laid_out,
    is_another_answer,
    put_back,
    same_bytes,
    share_memory,
)
from tilecast.sandbox.harness.worker.memory import Memory
from tilecast.sandbox.harness.worker.side_effects import OF_ALL_ARGUMENTS, Given
from tilecast.sandbox.harness.worker.truth import TruthOptions, float64_truth, native_truth

Handler = Callable[[Message], Message]
_EXTRAS = ("WORKLOADS", "TOLERANCE", "DOMAIN")


def seed_everything(seed: int) -> None:
    """Seed torch's generators, Python's and numpy's alike: for inputs. A forward has torch's alone seeded, as a candidate has."""
    import numpy

    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))


def generator_states(device: torch.device) -> list[Tensor]:
    """States of the generators that a forward on a device may draw from: torch's for the CPU, and the GPU's own."""
    states = [torch.default_generator.get_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def keyword_arguments(function: Callable[..., Any], workload: dict[str, Any]) -> dict[str, Any]:
    """Those values of a workload that the function names as parameters."""
    parameters = inspect.signature(function).parameters
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values()):
        return dict(workload)
    return {name: value for name, value in workload.items() if name in parameters}


@dataclass
class Effects:
    """What a forward does beside returning: which inputs and state it writes, which inputs its outputs lie in."""

    inputs: list[int] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    aliases: list[list[int]] = field(default_factory=list)
    consumes_rng: bool = False
    changes_containers: bool = False


class ReferenceHandlers:
    """Operations of the reference role."""

    def __init__(self, caller: Caller, memory: Memory) -> None:
        self._caller, self._memory = caller, memory
        self._results: list[Tensor] = []
        self._kept_bytes: int | None = None

    def handlers(self) -> dict[str, Handler]:
        """By operation name."""
        return {
            "extras": self._extras,
            "keep_little": self._keep_little,
            "describe": self._describe,
            "draw": self._thrifty(self._draw),
            "run": self._thrifty(self._run),
            "truth": self._thrifty(self._truth),
            "take": self._thrifty(self._take),
        }

    def _thrifty(self, handler: Handler) -> Handler:
        """Memory is given back once a handler is through with it and its results are handed over."""

        def handle(message: Message) -> Message:
            reply = handler(message)
            if not self._results and self._kept_bytes is not None:
                give_back(self._memory.device, self._kept_bytes)
            return reply

        return handle

    def _source(self) -> Any:
        if self._caller.source is None:
            raise failures.Failure("ENVIRONMENT_ERROR", "the problem is not loaded yet")
        return self._caller.source

    def _keep_little(self, message: Message) -> Message:
        """From now on torch keeps at most so many bytes of the device after a request."""
        self._kept_bytes = int(message["bytes"])
        if message.get("idle"):
            give_back(self._memory.device, self._kept_bytes, idle=True)
        return {}

    def _extras(self, message: Message) -> Message:
        """WORKLOADS, TOLERANCE and DOMAIN as the file defines them."""
        found = {name: getattr(self._source(), name) for name in _EXTRAS if hasattr(self._source(), name)}
        return {"extras": encode_tree(found, [])}

    def _describe(self, message: Message) -> Message:
        return describing.describe(self._source(), message["workload"], dry=bool(message.get("dry", True)))

    def _draw(self, message: Message) -> Message:
        """``get_inputs`` or ``get_init_inputs`` of a workload, once a seed, on the default device."""
        draws = self._draws(message, apart=False)
        if len(draws) > 1 and share_memory(draws):  # it hands out one buffer again and again: what came first is gone
            draws = self._draws(message, apart=True)
        return self._hold(draws, message)

    def _draws(self, message: Message, *, apart: bool) -> list[list[Any]]:
        """One list of values a seed; with ``apart`` copied before the next is drawn."""
        function = getattr(self._source(), str(message["function"]))
        named = keyword_arguments(function, message["workload"])
        draws: list[list[Any]] = []
        for seed in message["seeds"]:
            seed_everything(int(seed))
            with torch.device(self._memory.device), torch.no_grad():
                values = function(**named)
            if not isinstance(values, list | tuple):
                raise failures.Failure("RUNTIME_ERROR", f"{message['function']}() must return a list")
            if apart:
                tensors: list[Tensor] = []
                tree = encode_tree(list(values), tensors)
                values = decode_tree(tree, [clone_laid_out(item.detach()) for item in tensors])
            draws.append(list(values))
        return draws

    def _hold(self, values: Any, message: Message) -> Message:
        """Results, as they are told: in the room offered, if they fit there, else kept until they are taken."""
        tensors: list[Tensor] = []
        tree = encode_tree(values, tensors)
        self._results = [item.detach().to(self._memory.device) for item in tensors]
        specs = [TensorSpec.kept(item) for item in self._results]
        reply: Message = {"tree": tree, "tensors": [spec.to_message() for spec in specs]}
        room = message.get("room")
        offsets, total = packed(specs, ALIGNMENT)
        if room is not None and total <= room["size"]:
            self._hand_over(
                [{**room, "at": room["at"] + at, "size": spec.extent} for at, spec in zip(offsets, specs, strict=True)]
            )
            reply["landed"] = True
        return reply

    def _take(self, message: Message) -> Message:
        """Copy held results into the regions given."""
        self._hand_over(message["spaces"])
        return {}

    def _hand_over(self, spaces: list[Message]) -> None:
        """Results into regions, with the strides that are reported; after that none is held."""
        with torch.no_grad():
            for tensor, item in zip(self._results, spaces, strict=True):
                place(self._memory.bytes_of(item), TensorSpec.kept(tensor)).copy_(tensor)
        if self._memory.device.type == "cuda":
            torch.cuda.synchronize()
        self._results = []

    def _arguments(self, message: Message) -> list[Tensor]:
        """Private copies of the inputs, with the strides they were given, as far into their storage.

        Where an input starts decides how many of its elements are read at once, and with that what some forwards answer: the
        same seed gives a dropout on a GPU other numbers for an input that is not aligned.
        """
        items = message["tensors"]
        given = self._memory.tensors(items)
        return [clone_laid_out(tensor, int(item["offset"])) for tensor, item in zip(given, items, strict=True)]

    def _run(self, message: Message) -> Message:
        """One native forward on clones, with its effects (observed, unless ``effects`` says which to report).

        Held: outputs, then written inputs, then written state; with ``truth`` what :meth:`_truth` holds of the same call,
        behind. State is put back.
        """
        module = self._caller.require_module()
        tensors = self._arguments(message)
        before = [item.clone() for item in tensors]
        versions = [item._version for item in tensors]
        state = {name: item.clone() for name, item in module.state_dict().items()}
        torch.manual_seed(int(message["seed"]))
        rng = generator_states(self._memory.device)
        arguments = decode_tree(message["inputs"], tensors)
        given = Given(arguments, tensors)
        try:
            with torch.no_grad():
                result = module(*arguments)
        except BaseException:
            put_back(module, state)  # it may have counted the batch before it found fault with its size
            raise
        drawn = any(not torch.equal(a, b) for a, b in zip(rng, generator_states(self._memory.device), strict=True))
        effects = Effects(consumes_rng=drawn)
        effects.changes_containers = any(number == OF_ALL_ARGUMENTS for number, _ in given.moved())
        outputs = outputs_in(result)
        now = module.state_dict()
        fixed = message.get("effects")
        if fixed is None:
            effects.inputs = [
                index
                for index, (old, new) in enumerate(zip(before, tensors, strict=True))
                if new._version != versions[index] or not same_bytes(old, new)
            ]
            effects.state = [name for name, value in state.items() if not same_bytes(value, now[name])]
        else:
            effects.inputs, effects.state = list(fixed["inputs"]), list(fixed["state"])
        effects.aliases = aliases_of(outputs, tensors)
        overlaps = [TensorSpec.of(item).overlaps for item in outputs]
        extra = [tensors[i] for i in effects.inputs] + [now[name].clone() for name in effects.state]
        if effects.state:
            with torch.no_grad():
                outputs = [clone_laid_out(item) for item in outputs]  # one may lie in the state that is put back
            put_back(module, {name: state[name] for name in effects.state})
        reply = {
            "result": encode_outputs(result, []),
            "outputs": len(outputs),
            "effects": vars(effects),
            "overlaps": overlaps,
        }
        values = [*outputs, *extra]
        if "truth" in message:
            asked = {**message, **message["truth"], "effects": vars(effects)}
            more, reply["truth"] = self._true_values(asked, values)
            values = [*values, *more]
        return reply | self._hold(values, message)

    def _truth(self, message: Message) -> Message:
        """Float64 truth of the same call. Held: truths, then spreads (those that exist), then alternates."""
        values, reply = self._true_values(message, None)
        return reply | self._hold(values, message)

    def _true_values(self, message: Message, native: list[Tensor] | None) -> tuple[list[Tensor], Message]:
        """Those values, and what is to be said of them; ``native`` is the same call in the reference's own precision, if made."""
        module = self._caller.require_module()
        tensors = self._arguments(message)
        written, state = list(message["effects"]["inputs"]), list(message["effects"]["state"])
        seed = int(message["seed"])

        def forward(target: torch.nn.Module, inputs: list[Any]) -> list[Tensor]:
            torch.manual_seed(seed)
            own, now = list(inputs), target.state_dict()
            before = {name: now[name].clone() for name in state}
            with torch.no_grad():
                result = target(*decode_tree(message["inputs"], own))
                # One may lie in what is put back.
                outputs = [item.clone() if state else item for item in outputs_in(result)]
            after = [target.state_dict()[name].clone() for name in state]
            put_back(target, before)  # the next run, a perturbed one, starts where this one did
            return [*outputs, *(own[i] for i in written), *after]

        if native is None:
            native = forward(_copy(module), self._arguments(message))
        options = TruthOptions(seed=seed, budget_bytes=int(message["budget_bytes"]), perturb=bool(message["perturb"]))
        truth = float64_truth(module, tensors, native, forward, options)
        if message["effects"].get("consumes_rng") and is_another_answer(truth.outputs, native):
            # The same seed gives other numbers in float64: what is masked here is not what is masked there.
            truth = native_truth(native, "its random numbers are others in float64")
        spreads = [item for item in truth.spread if item is not None]
        alternates = [item for items in truth.alternates for item in items]
        return [*truth.outputs, *spreads, *alternates], {
            "spread": [item is not None for item in truth.spread],
            "alternates": [len(items) for items in truth.alternates],
            "method": truth.method,
            "reduction": truth.reduction,
            "products": truth.products,
            "note": truth.note[:500],
        }


def _copy(module: torch.nn.Module) -> torch.nn.Module:
    import copy

    return copy.deepcopy(module)
