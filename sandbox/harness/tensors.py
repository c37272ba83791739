"""Tensors as plain JSON and raw bytes: specs with explicit strides, and trees of Python values around them.

Both sides of the wire use this; nothing is pickled. A spec's ``bytes`` is the extent of memory it spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MAX_DIMENSIONS = 32
MAX_EXTENT = 1 << 44


class BadSpec(ValueError):
    """A spec or tree from the other side that makes no sense."""


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: object) -> torch.dtype:
    """Inverse of :func:`dtype_name`.

    Raises:
        BadSpec: for anything else than a torch dtype's name.
    """
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise BadSpec(f"{name!r:.60} is not a dtype")
    return dtype


@dataclass(frozen=True)
class TensorSpec:
    """Where a tensor lies in a piece of memory that starts with it: ``stride`` and ``offset`` in elements."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    stride: tuple[int, ...]
    offset: int = 0

    @classmethod
    def dense(cls, shape: Sequence[int], dtype: torch.dtype) -> TensorSpec:
        """Contiguous, from the first byte on."""
        stride = [1] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            stride[axis] = stride[axis + 1] * max(1, shape[axis + 1])
        return cls(tuple(shape), dtype, tuple(stride))

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        """Shape, dtype and strides of a tensor, as if its first element came first."""
        return cls(tuple(tensor.shape), tensor.dtype, tuple(tensor.stride()))

    @classmethod
    def kept(cls, tensor: Tensor) -> TensorSpec:
        """As :meth:`of`, but contiguous where the strides make elements overlap or leave more gaps than elements."""
        spec = cls.of(tensor)
        if spec.overlaps or spec.extent > 2 * spec.elements * spec.dtype.itemsize:
            return cls.dense(spec.shape, spec.dtype)
        return spec

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def extent(self) -> int:
        """Bytes from the start of the memory to the end of the last element; 0 for an empty tensor."""
        if self.elements == 0:
            return 0
        last = self.offset + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * self.dtype.itemsize

    @property
    def overlaps(self) -> bool:
        """Whether several elements share memory (a broadcast made by stride 0, for instance)."""
        axes = sorted((step, size) for size, step in zip(self.shape, self.stride, strict=True) if size > 1)
        reach = 0
        for step, size in axes:
            if step <= reach:
                return self.elements > 0
            reach += step * (size - 1)
        return False

    def to_message(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "shape": list(self.shape),
            "dtype": dtype_name(self.dtype),
            "stride": list(self.stride),
            "offset": self.offset,
        }

    @classmethod
    def from_message(cls, message: object) -> TensorSpec:
        """From what the other side sent.

        Raises:
            BadSpec: unless every number is a sane size.
        """
        if not isinstance(message, dict):
            raise BadSpec("a tensor's description must be an object")
        shape, stride = _sizes(message.get("shape")), _sizes(message.get("stride"))
        offset = _size(message.get("offset", 0))
        if len(shape) != len(stride):
            raise BadSpec(f"{len(shape)} sizes with {len(stride)} strides")
        spec = cls(shape, dtype_of(message.get("dtype")), stride, offset)
        if spec.elements > MAX_EXTENT or spec.extent > MAX_EXTENT:
            raise BadSpec(f"a tensor of shape {list(shape)} is out of any memory")
        return spec


def _size(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_EXTENT:
        raise BadSpec(f"{value!r:.40} is not a size")
    return value


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        raise BadSpec("sizes must be a short list")
    return tuple(_size(item) for item in value)


def place(memory: Tensor, spec: TensorSpec) -> Tensor:
    """A tensor over ``memory`` (one dimension, uint8): neither a view of another tensor nor with anything attached.

    Raises:
        BadSpec: if it does not fit.
    """
    if spec.extent > memory.numel():
        raise BadSpec(f"a tensor of {spec.extent} bytes does not fit in {memory.numel()}")
    start = memory.storage_offset()
    if start % spec.dtype.itemsize:
        raise BadSpec(f"memory at byte {start} is not aligned for {dtype_name(spec.dtype)}")
    empty = torch.empty(0, dtype=spec.dtype, device=memory.device)
    offset = start // spec.dtype.itemsize + spec.offset
    return empty.set_(memory.untyped_storage(), offset, spec.shape, spec.stride)


def bytes_in(tensor: Tensor) -> Tensor:
    """The bytes of a tensor's elements in the order of their indices: uint8, one dimension.

    Whatever its strides: of a single element any stride counts as contiguous, and such a one cannot be viewed as bytes.
    """
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def encode_tree(value: Any, tensors: list[Tensor], depth: int = 0, *, by_name: bool = False) -> dict[str, Any]:
    """A value of nested lists, tuples and dicts as JSON; its tensors are appended to ``tensors`` in order.

    With ``by_name`` dicts are taken in the order of their keys, not of their making. Named tuples and torch's return types
    become tuples. Anything unknown becomes ``{"x": type name}``.
    """
    if depth > 20:
        return {"x": "too deep a nesting"}
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"t": len(tensors) - 1}
    if value is None or type(value) in (bool, str) or (type(value) is int and abs(value) < 1 << 63):
        return {"v": value}
    if type(value) is float:
        return {"f": repr(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, list):
        return {"l": [encode_tree(item, tensors, depth + 1, by_name=by_name) for item in value]}
    if isinstance(value, tuple):
        return {"u": [encode_tree(item, tensors, depth + 1, by_name=by_name) for item in value]}
    if isinstance(value, dict) and all(type(key) is str for key in value):
        items = sorted(value.items(), key=lambda item: item[0]) if by_name else value.items()
        return {"d": {key: encode_tree(item, tensors, depth + 1, by_name=by_name) for key, item in items}}
    return {"x": type(value).__name__[:60]}


def decode_tree(node: object, tensors: Sequence[Tensor], depth: int = 0) -> Any:
    """Inverse of :func:`encode_tree`.

    Raises:
        BadSpec: for a node that is not one, or a value that could not be sent (``x``).
    """
    if depth > 24 or not isinstance(node, dict) or len(node) != 1:
        raise BadSpec("not a value's description")
    kind, content = next(iter(node.items()))
    if kind == "t" and type(content) is int and 0 <= content < len(tensors):
        return tensors[content]
    if kind == "v" and (content is None or type(content) in (bool, str, int)):
        return content
    if kind == "f" and isinstance(content, str):
        return float(content)
    if kind == "dtype":
        return dtype_of(content)
    if kind in ("l", "u") and isinstance(content, list):
        items = [decode_tree(item, tensors, depth + 1) for item in content]
        return items if kind == "l" else tuple(items)
    if kind == "d" and isinstance(content, dict):
        return {key: decode_tree(item, tensors, depth + 1) for key, item in content.items()}
    if kind == "x":
        raise BadSpec(f"a value of type {content!r:.80} cannot be handed to another process")
    raise BadSpec("not a value's description")


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of a tree, in the order of :func:`encode_tree`."""
    found: list[Tensor] = []
    encode_tree(value, found)
    return found


def packed(specs: Sequence[TensorSpec], alignment: int) -> tuple[list[int], int]:
    """Offsets at which tensors lie one behind the other, each aligned, and the bytes that takes in all."""
    offsets, end = [], 0
    for spec in specs:
        offsets.append(end)
        end += -(-spec.extent // alignment) * alignment
    return offsets, end


def encode_outputs(value: Any, tensors: list[Tensor]) -> dict[str, Any]:
    """What a forward returned: in a dict it is the names that say which output is which, not the order they were put in."""
    return encode_tree(value, tensors, by_name=True)


def outputs_in(value: Any) -> list[Tensor]:
    """All tensors that a forward returned, in the order of :func:`encode_outputs`."""
    found: list[Tensor] = []
    encode_outputs(value, found)
    return found


def misplaced(expected: object, got: object) -> str:
    """What is wrong with the containers of outputs, as encoded; empty if nothing is.

    Sequences do not count: a list, a tuple and a named structure are one and the same. The keys of a dict are how its reader
    finds what he wants.
    """
    for want, have in zip(_leaves(expected), _leaves(got), strict=False):
        if not isinstance(want, dict):
            continue
        if not isinstance(have, dict):
            return f"no dict where the reference returns one with the keys {sorted(want)}"
        if set(want) != set(have):
            return f"a dict with the keys {sorted(have)}, expected {sorted(want)}"
        for key, node in want.items():
            wrong = misplaced(node, have[key])
            if wrong:
                return f"in {key!r}: {wrong}"
    return ""


def _leaves(node: object) -> list[Any]:
    """The tensors (None each) and dicts of nested sequences, one after the other; other values are left out."""
    if not isinstance(node, dict) or len(node) != 1:
        return []
    kind, content = next(iter(node.items()))
    if kind in ("l", "u") and isinstance(content, list):
        return [leaf for item in content for leaf in _leaves(item)]
    if kind == "d" and isinstance(content, dict):
        return [content]
    return [None] if kind == "t" else []
