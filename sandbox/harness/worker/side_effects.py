"""What a call did to what it was given, and to what was handed out before: argument objects, the module's state, outputs.

Values of inputs are compared by the judge, in its own memory. Here is what lies beside them: a caller's tensor object that
now shows other memory, a list that lost an element, a parameter overwritten, an output of long ago that changed.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.tensors import TensorSpec, bytes_in, encode_tree
from tilecast.sandbox.harness.worker.export import has_memory
from tilecast.sandbox.harness.worker.findings import Finding

_DATA_PTR = torch._C.TensorBase.data_ptr
_WORD_BYTES = 8
_CHUNK_WORDS = 1 << 22
_SCATTER = 0x1E3779B97F4A7C15
"""An odd number near the golden ratio's share of 2^63: places that are close get weights that are not."""
_DEEPEST = 100
"""Modules within modules: one that holds itself has no end."""
OF_ALL_ARGUMENTS = -1
"""In place of an input's number: the lists and dicts around the inputs."""


def fingerprint(tensor: Tensor) -> Tensor:
    """A number made of the bytes of a tensor, in the order of its indices: int64, without dimensions, on its device.

    Nothing is waited for: on a GPU many are made, and compared by :func:`_differing`, for one wait in all.
    """
    data = bytes_in(tensor.detach())
    if data.device.type == "cpu":
        return torch.tensor(zlib.crc32(data.numpy().data))
    return weighted_sum(data)


def weighted_sum(data: Tensor) -> Tensor:
    """Sum of 8-byte words times odd numbers that grow, modulo 2^64: a change in one word always shows, an exchange of two too.

    (An exchange moves it by the product of the two differences, and that of the weights is below 2^63 in any memory there is:
    it goes unseen only if the words differ by a multiple of a large power of two.)
    """
    if data.data_ptr() % _WORD_BYTES or data.storage_offset() % _WORD_BYTES:
        data = data.clone()
    whole = data.numel() // _WORD_BYTES * _WORD_BYTES
    words, rest = data[:whole].view(torch.int64), data[whole:].to(torch.int64)
    total = (rest * torch.arange(1, rest.numel() + 1, device=data.device)).sum() * _SCATTER
    for start in range(0, words.numel(), _CHUNK_WORDS):
        part = words[start : start + _CHUNK_WORDS]
        place = torch.arange(start, start + part.numel(), device=data.device)
        total = total + (part * (place * _SCATTER * 2 + 1)).sum()
    return total


def _differing(now: Sequence[Tensor], before: Sequence[Tensor]) -> list[int]:
    """Numbers of the fingerprints that are others now."""
    found = [index for index, (a, b) in enumerate(zip(now, before, strict=True)) if a.device != b.device]
    for device in {item.device for item in now}:  # each is waited for once
        here = [index for index, a in enumerate(now) if a.device == device == before[index].device]
        if here:
            others = torch.stack([now[index] for index in here]) != torch.stack([before[index] for index in here])
            found += [here[place] for place in torch.nonzero(others).flatten().tolist()]
    return sorted(found)


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
    """Fingerprints of what was set in each module's state: a forward that writes to it shows.

    Of what was set, and of nothing else: what a module adds to its state is its own affair, and may have no bytes to read.
    """

    def __init__(self) -> None:
        self._marks: dict[int, dict[str, tuple[tuple[int, ...], Tensor]]] = {}

    def mark(self, module: torch.nn.Module, names: Iterable[str]) -> None:
        """These entries are right as they are now; the others stay as they were marked."""
        self._marks.setdefault(id(module), {}).update(_state(module, names))

    def forget(self, module: torch.nn.Module) -> None:
        """A new module: what lay at its address before is not it."""
        self._marks.pop(id(module), None)

    def changed(self, module: torch.nn.Module) -> list[str]:
        """Names of entries that hold something else, or are gone; none for a module that was never marked."""
        marked = self._marks.get(id(module))
        if not marked:
            return []
        now = _state(module, marked)
        here = [name for name in marked if name in now and now[name][0] == marked[name][0]]
        others = _differing([now[name][1] for name in here], [marked[name][1] for name in here])
        written = {here[index] for index in others} | (set(marked) - set(here))
        return [name for name in marked if name in written]


def registered(module: torch.nn.Module, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers by name, as torch registered them: a module may tell ``state_dict`` otherwise."""
    own = object.__getattribute__(module, "__dict__")
    passing = own.get("_non_persistent_buffers_set", ())
    for table in (own.get("_parameters"), own.get("_buffers")):
        for name, item in dict.items(table) if isinstance(table, dict) else ():
            if isinstance(item, Tensor) and name not in passing:
                yield prefix + name, item
    below = own.get("_modules")
    for name, item in dict.items(below) if isinstance(below, dict) and depth < _DEEPEST else ():
        if isinstance(item, torch.nn.Module):
            yield from registered(item, f"{prefix}{name}.", depth + 1)


def _state(module: torch.nn.Module, names: Iterable[str]) -> dict[str, tuple[tuple[int, ...], Tensor]]:
    entries = {**module.state_dict(), **dict(registered(module))}
    found = {name: entries[name] for name in names if isinstance(entries.get(name), Tensor)}
    return {name: (tuple(item.shape), fingerprint(item)) for name, item in found.items() if has_memory(item)}


@dataclass(frozen=True, eq=False)
class _Kept:
    outputs: list[Tensor]
    prints: list[Tensor]
    storages: dict[int, int]
    """Address and bytes of what is kept alive with them: an output may be a small piece of a large storage."""


class HandedOut:
    """Outputs of many calls, held on to as a caller may: one whose contents change was handed out a second time.

    Small ones only, the latest :data:`MOST` calls; what they keep alive is :data:`MOST_BYTES` in all, or the storage of the
    latest alone with all that was handed out of it. What lies in an input, or in state that is set
    from outside between calls, changes with those and is left out. Buffers that a module adds to its state are no such state.
    """

    MOST = 64
    LARGEST_BYTES, MOST_BYTES = 1 << 20, 1 << 24

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()

    def add(self, outputs: Sequence[Tensor], claims: Sequence[dict[str, Any]], state: Sequence[Tensor]) -> None:
        """Keep what a call returned; ``claims`` say which outputs lie in inputs, ``state`` is what others set."""
        own = [
            item
            for item, claim in zip(outputs, claims, strict=True)
            if claim["in_input"] is None and claim["plain"] and "placed" in claim
        ]
        with torch._C.DisableTorchFunction(), torch.no_grad():
            size = sum(TensorSpec.of(item).extent for item in own)
            if not own or size > self.LARGEST_BYTES or _meet(own, state):
                return
            storages = {item.untyped_storage().data_ptr(): item.untyped_storage().nbytes() for item in own}
            self._kept.append(_Kept(own, [fingerprint(item) for item in own], storages))
        self._let_go(storages)

    def _let_go(self, latest: dict[int, int]) -> None:
        """Of the oldest, as far as they are too many or keep too much alive."""
        if len(self._kept) > self.MOST:
            self._kept.popleft()
        for old in list(self._kept):
            if self.held_bytes <= self.MOST_BYTES:
                return
            if not old.storages.keys() <= latest.keys():
                self._kept.remove(old)

    @property
    def held_bytes(self) -> int:
        """What is kept alive, each storage once."""
        return sum({at: size for kept in self._kept for at, size in kept.storages.items()}.values())

    def changes(self) -> list[Finding]:
        """Outputs that are no longer what they were: the latest of them."""
        places = [
            (age, index) for age, kept in enumerate(reversed(self._kept), 1) for index in range(len(kept.outputs))
        ]
        with torch._C.DisableTorchFunction(), torch.no_grad():
            now = [fingerprint(item) for kept in reversed(self._kept) for item in kept.outputs]
            others = _differing(now, [item for kept in reversed(self._kept) for item in kept.prints])
        if not others:
            return []
        age, index = places[others[0]]
        detail = (
            f"output {index} of a call {age} calls ago changed afterwards, though its caller still holds it: "
            "each call must return memory of its own"
        )
        return [Finding("output-overwritten", detail)]


def _meet(outputs: Sequence[Tensor], state: Sequence[Tensor]) -> bool:
    """Whether an output lies in memory of the state: an element of one within the reach of the other."""
    owned = [_reach(item) for item in state]
    return any(a < end and start < b for a, b in map(_reach, outputs) for start, end in owned)


def _reach(tensor: Tensor) -> tuple[int, int]:
    first = _DATA_PTR(tensor)
    return first, first + TensorSpec.of(tensor).extent
