"""What a call did to what it was given, and to what was handed out before: argument objects, the module's state, outputs.

Values of inputs are compared by the judge, in its own memory. Here is what lies beside them: a caller's tensor object that
now shows other memory, a list that lost an element, a parameter overwritten, an output of long ago that changed.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.tensors import TensorSpec, bytes_in, encode_tree
from tilecast.sandbox.harness.worker.findings import Finding

_DATA_PTR = torch._C.TensorBase.data_ptr
_CHUNK_BYTES = 1 << 22
_PRIME = 2_147_483_629
OF_ALL_ARGUMENTS = -1
"""In place of an input's number: the lists and dicts around the inputs."""


def checksum(tensor: Tensor) -> tuple[int, int]:
    """Of the bytes of a tensor, in the order of its indices; on a GPU weighted by place, computed there."""
    data = bytes_in(tensor.detach())
    if data.device.type == "cpu":
        return zlib.crc32(data.numpy().data), data.numel()
    return int(_weighted_sum(data)), data.numel()


def _weighted_sum(data: Tensor) -> Tensor:
    """Bytes weighted by their places, modulo a prime; a number on the data's device, which is waited for by who reads it."""
    total = torch.zeros((), dtype=torch.long, device=data.device)
    for start in range(0, data.numel(), _CHUNK_BYTES):
        part = data[start : start + _CHUNK_BYTES].long()
        weights = torch.arange(1, part.numel() + 1, device=data.device) * 1_000_003 % _PRIME
        total = (total * 31 + ((part + 1) * weights % _PRIME).sum()) % _PRIME
    return total


def _describe(tensor: Tensor) -> tuple[Any, ...]:
    return (
        *(type(tensor), _DATA_PTR(tensor), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype),
        *(tensor.device, tensor.requires_grad),
    )


class Given:
    """Arguments as they were handed over: the tensor objects and what is around them."""

    def __init__(self, arguments: list[Any], tensors: Sequence[Tensor]) -> None:
        self._arguments, self._tensors = arguments, list(tensors)
        self._before = [_describe(item) for item in self._tensors]
        self._tree = encode_tree(arguments, [])

    def moved(self) -> list[list[Any]]:
        """Number of an input (or :data:`OF_ALL_ARGUMENTS`) and what happened to the object, for each that is not as it was."""
        found: list[list[Any]] = []
        with torch._C.DisableTorchFunction():
            for index, (tensor, before) in enumerate(zip(self._tensors, self._before, strict=True)):
                text = _difference(before, _describe(tensor))
                if text:
                    found.append([index, text])
            now: list[Tensor] = []
            tree = encode_tree(self._arguments, now)
        if tree != self._tree or len(now) != len(self._tensors):
            found.append([OF_ALL_ARGUMENTS, "a list or dict among the arguments was changed"])
        elif any(a is not b for a, b in zip(now, self._tensors, strict=True)):
            found.append([OF_ALL_ARGUMENTS, "a tensor in a list or dict among the arguments was replaced"])
        return found


def _difference(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    if before == after:
        return ""
    names = ("class", "address", "shape", "strides", "dtype", "device", "requires_grad")
    place = next(index for index, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    if names[place] == "address":
        return "the caller's tensor object now shows other memory"
    return f"the caller's tensor object has another {names[place]}: {before[place]} before, {after[place]} now"


class StateMarks:
    """Checksums of each module's state when it was last set: a forward that writes to it shows."""

    def __init__(self) -> None:
        self._marks: dict[int, dict[str, tuple[Any, ...]]] = {}

    def mark(self, module: torch.nn.Module) -> None:
        """As it is now is right."""
        self._marks[id(module)] = _state(module)

    def changed(self, module: torch.nn.Module) -> list[str]:
        """Names of entries that hold something else, or are gone; none for a module that was never marked."""
        marked = self._marks.get(id(module))
        if not marked:
            return []
        now = _state(module)
        return [name for name, value in marked.items() if now.get(name) != value]


def _state(module: torch.nn.Module) -> dict[str, tuple[Any, ...]]:
    entries = module.state_dict().items()
    return {name: (tuple(item.shape), *checksum(item)) for name, item in entries if isinstance(item, Tensor)}


@dataclass(frozen=True)
class _Kept:
    outputs: list[Tensor]
    sums: list[tuple[int, int]]
    size: int


class HandedOut:
    """Outputs of many calls, held on to as a caller may: one whose contents change was handed out a second time.

    Small ones only, the latest :data:`MOST` calls, :data:`MOST_BYTES` in all. What lies in an input or in the module's state
    changes with those and is left out.
    """

    MOST = 64
    LARGEST_BYTES, MOST_BYTES = 1 << 20, 1 << 24

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._bytes = 0

    def add(self, outputs: Sequence[Tensor], claims: Sequence[dict[str, Any]], module: torch.nn.Module) -> None:
        """Keep what a call returned; ``claims`` say which outputs lie in inputs."""
        own = [
            item
            for item, claim in zip(outputs, claims, strict=True)
            if claim["in_input"] is None and claim["plain"] and "placed" in claim
        ]
        with torch._C.DisableTorchFunction(), torch.no_grad():
            size = sum(TensorSpec.of(item).extent for item in own)
            if not own or size > self.LARGEST_BYTES or _meet(own, module.state_dict(keep_vars=True).values()):
                return
            self._kept.append(_Kept(own, [checksum(item) for item in own], size))
        self._bytes += size
        while len(self._kept) > self.MOST or self._bytes > self.MOST_BYTES:
            self._bytes -= self._kept.popleft().size

    def changes(self) -> list[Finding]:
        """Outputs that are no longer what they were."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for age, kept in enumerate(reversed(self._kept), 1):
                for index, (item, before) in enumerate(zip(kept.outputs, kept.sums, strict=True)):
                    if checksum(item) != before:
                        detail = (
                            f"output {index} of a call {age} calls ago changed afterwards, though its caller still holds it: "
                            "each call must return memory of its own"
                        )
                        return [Finding("output-overwritten", detail)]
        return []


def _meet(outputs: Sequence[Tensor], state: Iterable[Any]) -> bool:
    """Whether an output lies in the memory of the module's state."""
    owned = {item.untyped_storage().data_ptr() for item in state if isinstance(item, Tensor) and item.numel()}
    return any(item.untyped_storage().data_ptr() in owned for item in outputs)
