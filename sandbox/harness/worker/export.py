"""Outputs into the judge's memory, as raw bytes, below everything that Python code can override.

The functions used are taken at import, before any candidate runs. What is reported beside the bytes is a claim.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tilecast.sandbox.harness.arena import copy_on_device
from tilecast.sandbox.harness.tensors import TensorSpec

_DATA_PTR = torch._C.TensorBase.data_ptr
_STORAGE = torch._C.TensorBase.untyped_storage
_MEMMOVE = ctypes.memmove
_RESOLVE_CONJ, _RESOLVE_NEG = torch.resolve_conj, torch.resolve_neg
_FILL = torch._C.TensorBase.fill_
_INFERENCE_MODE = torch.inference_mode
_PLAIN = (Tensor, torch.nn.Parameter)
_COMPILERS_OWN = "_dynamo_"
_MARKS = (bool, int, str, type(None), set, frozenset, tuple, list, dict)
"""What torch's compiler notes on tensors where shapes vary (which sizes are dynamic): names and values that change nothing."""


@dataclass(frozen=True)
class Space:
    """A piece of the judge's memory for one output."""

    address: int
    capacity: int


def report(tensor: Tensor, inputs: Sequence[Tensor]) -> dict[str, Any]:
    """Claims about one output: shape, dtype, strides, whether it is a plain tensor, and which input it lies in."""
    with torch._C.DisableTorchFunction():
        if not has_memory(tensor):
            return _without_memory(tensor)
        spec = TensorSpec.of(tensor)
        storage = _STORAGE(tensor)
        start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        first = _DATA_PTR(tensor)
        attached = _attached(tensor)
        return {
            **spec.to_message(),
            "device": str(tensor.device),
            "layout": str(tensor.layout),
            "plain": type(tensor) in _PLAIN and not attached,
            "kind": type(tensor).__name__[:60],
            "attached": attached[:8],
            "fits": spec.extent == 0 or (start <= first and first + spec.extent <= end),
            "storage_bytes": storage.nbytes(),
            "in_input": _inside(first, spec.extent, inputs),
        }


def has_memory(tensor: Tensor) -> bool:
    """Whether there are bytes to read: none of sparse and meta tensors, nor of a subclass, which may not have computed any."""
    return type(tensor) in _PLAIN and tensor.layout == torch.strided and tensor.device.type != "meta"


def _without_memory(tensor: Tensor) -> dict[str, Any]:
    kind = type(tensor)
    return {
        **TensorSpec.dense(tuple(int(size) for size in tensor.shape), tensor.dtype).to_message(),
        "device": str(tensor.device),
        "layout": str(tensor.layout),
        "plain": kind in _PLAIN,
        "kind": kind.__name__[:60],
        "attached": [],
        "fits": True,
        "storage_bytes": 0,
        "in_input": None,
    }


def _resolved(tensor: Tensor) -> Tensor:
    """With lazy conjugation and negation carried out: torch notes those as a bit beside the bytes."""
    if tensor.is_conj():
        tensor = _RESOLVE_CONJ(tensor)
    return _RESOLVE_NEG(tensor) if tensor.is_neg() else tensor


def _attached(tensor: Tensor) -> list[str]:
    """Names of attributes that were put on a tensor, the compiler's own marks left out."""
    found = getattr(tensor, "__dict__", {})
    if not isinstance(found, dict):
        return ["__dict__"]
    return sorted(
        str(name)[:60]
        for name, value in dict.items(found)
        if not (type(name) is str and name.startswith(_COMPILERS_OWN) and type(value) in _MARKS)
    )


def _inside(first: int, extent: int, inputs: Sequence[Tensor]) -> int | None:
    for index, item in enumerate(inputs):
        storage = _STORAGE(item)
        if extent and storage.data_ptr() < first + extent and first < storage.data_ptr() + storage.nbytes():
            return index
    return None


def export(tensor: Tensor, space: Space, stream: int | None) -> dict[str, Any]:
    """Copy one output into ``space``; says how it lies there, or why it does not.

    A dense output (in any order of its axes) is copied byte by byte; one that is spread out is packed first.
    """
    with torch._C.DisableTorchFunction():
        if not has_memory(tensor):
            what = (
                f"layout {tensor.layout} on {tensor.device}"
                if type(tensor) in _PLAIN
                else f"a {type(tensor).__name__:.60}"
            )
            return {"missing": f"{what}, not a dense torch.Tensor with memory"}
        tensor = _resolved(tensor)
        spec = TensorSpec.of(tensor)
        if _STORAGE(tensor).nbytes() < spec.extent:
            return {"missing": f"a storage of {_STORAGE(tensor).nbytes()} bytes for {spec.extent}"}
        packed = tensor
        if spec.extent > space.capacity:
            if spec.elements * spec.dtype.itemsize > space.capacity:
                return {"missing": f"{spec.elements} elements do not fit in the {space.capacity} bytes expected"}
            packed = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            packed.copy_(tensor)
            spec = TensorSpec.of(packed)
        if spec.extent:
            _copy(packed, space.address, spec.extent, stream)
        return {"placed": spec.to_message()}


def scribble(tensor: Tensor) -> None:
    """Overwrite an output that was handed out, as its owner, the caller, may."""
    # A tensor that was made in inference mode may be written to in none but that.
    with torch._C.DisableTorchFunction(), _INFERENCE_MODE(tensor.is_inference()), torch.no_grad():
        if has_memory(tensor) and tensor.numel() and not TensorSpec.of(tensor).overlaps:
            _FILL(tensor, float("nan") if tensor.dtype.is_floating_point or tensor.dtype.is_complex else 1)


def _copy(tensor: Tensor, address: int, size: int, stream: int | None) -> None:
    if tensor.device.type == "cuda" and stream is not None:
        copy_on_device(address, _DATA_PTR(tensor), size, stream)
    elif tensor.device.type == "cpu" and stream is None:
        _MEMMOVE(address, _DATA_PTR(tensor), size)
    # An output on the wrong device is reported as such and brings no bytes.
