"""Tensors that say they are on a GPU and hold nothing: host code runs on them as it would there, at no cost.

A :class:`VirtualTensor` is a meta tensor (or, where host code needs values, a CPU tensor) whose Python face shows
``device`` ``cuda:0`` and an address aligned as the CUDA allocator aligns. Kernels are captured, never run, so nobody
follows that address.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode, get_default_nowrap_functions
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_iter

CUDA = torch.device("cuda", 0)
_ADDRESS_STEP = 1 << 36
_addresses = itertools.count(1)
_storages: dict[int, tuple[int, Any]] = {}


class ValueNeeded(RuntimeError):
    """Host code asked for a value that a tensor without values does not have."""


def _address(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        storage = tensor.untyped_storage()
        offset = tensor.storage_offset() * tensor.element_size()
    key = storage._cdata
    if key not in _storages:
        # The storage is kept: a freed one's key could be given to another.
        _storages[key] = (0x7F << 40 | next(_addresses) % 4096 * _ADDRESS_STEP, storage)
    return _storages[key][0] + int(offset)


def storage_bytes_at(address: int) -> int:
    """Size of the storage that begins at this address; 0 if none does. For launches that are handed bare addresses."""
    return next((int(storage.nbytes()) for base, storage in _storages.values() if base == address), 0)


def forget_storages() -> None:
    """Let go of what was kept to tell storages apart."""
    _storages.clear()


_below_depth = 0


@contextlib.contextmanager
def below() -> Iterator[None]:
    """Within this, tensors tell the truth about their device: torch's own implementations of operators rely on it."""
    global _below_depth
    _below_depth += 1
    try:
        yield
    finally:
        _below_depth -= 1


def _device_type(tensor: torch.Tensor) -> str:
    if not _below_depth:
        return "cuda"
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage().device.type


class VirtualTensor(torch.Tensor):
    """Looks like a CUDA tensor to Python code."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        # Inside an operator's own implementation plain tensors do.
        return result if _below_depth or func in get_default_nowrap_functions() else _wrap(result)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(_device_type(self)) if _below_depth else CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return _device_type(self) == "cuda"

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return _device_type(self) == "cpu"

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return _device_type(self) == "meta"

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return _address(self)

    def cuda(self, *_: Any, **__: Any) -> torch.Tensor:
        return self

    def pin_memory(self, *_: Any, **__: Any) -> torch.Tensor:
        return self

    def record_stream(self, *_: Any) -> None:
        return None

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"VirtualTensor(shape={tuple(self.shape)}, dtype={self.dtype})"


def virtual(tensor: torch.Tensor) -> torch.Tensor:
    """The same storage with a GPU's face."""
    if isinstance(tensor, VirtualTensor) or tensor.layout is not torch.strided:
        return tensor
    return cast(torch.Tensor, torch.Tensor._make_subclass(VirtualTensor, tensor))


def _is_gpu(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.split(":")[0] == "cuda"


class VirtualDevice(TorchFunctionMode):
    """While active, ``cuda`` means the virtual device, and it is the default.

    ``base`` is ``meta`` (no memory, no values) or ``cpu`` (values, for host code that reads them).
    """

    def __init__(self, base: str, library_call: Callable[..., torch.Tensor] | None = None) -> None:
        super().__init__()
        self.base = base
        self._library_call = library_call
        self._constructors = _device_constructors()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.nn.functional.scaled_dot_product_attention and self._library_call is not None:
            return virtual(self._library_call(*args, **kwargs))
        name = getattr(func, "__name__", "")
        if name in ("cpu", "numpy", "tolist", "item", "__array__") and self.base == "meta" and _first_virtual(args):
            raise ValueNeeded(f"Tensor.{name}()")
        wrap = self._place(func, args, kwargs)
        if name in ("to", "cuda", "type"):
            args = tuple(self.base if _is_gpu(value) else value for value in args)
        touched = wrap or any(isinstance(value, VirtualTensor) for value in tree_iter((args, kwargs)))
        with below():
            result = func(*args, **kwargs)
        return _wrap(result) if touched and func not in get_default_nowrap_functions() else result

    def _place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Rewrite the device argument; True if what comes out is on the virtual device."""
        device = kwargs.get("device")
        if func in self._constructors:
            kwargs.pop("pin_memory", None)
            if device is not None and not _is_gpu(device) and str(device) != "meta":
                return False
            kwargs["device"] = self.base
            if self.base == "meta":
                kwargs.pop("generator", None)
            return True
        if device is not None and (_is_gpu(device) or isinstance(device, int)):
            kwargs["device"] = self.base
            return True
        return any(_is_gpu(value) for value in args)


def _first_virtual(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], VirtualTensor)


def _wrap(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return virtual(result)
    if isinstance(result, tuple | list) and not hasattr(result, "_fields"):
        return type(result)(_wrap(item) for item in result)
    return result
