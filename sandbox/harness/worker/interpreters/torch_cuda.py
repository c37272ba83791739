"""What honest host code asks of CUDA, answered without a GPU: properties of one Hopper device, streams that do nothing,
and allocations on ``cuda`` made on the CPU instead. Only ever installed in the worker that interprets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from .errors import Unsupported
from .triton_host import SM_COUNT

_FACTORIES = (
    "empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "logspace", "eye", "tensor",
    "as_tensor", "asarray", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
    "empty_strided", "scalar_tensor", "tril_indices", "triu_indices", "hann_window", "hamming_window", "range",
)  # fmt: skip
_METHODS = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")

PROPERTIES = SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=SM_COUNT, total_memory=150_754_820_096, warp_size=32,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=65536,
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
    L2_cache_size=52_428_800, is_integrated=0, is_multi_gpu_board=0, gcnArchName="", clock_rate=1980000,
)  # fmt: skip


class _Stream:
    """Work is done when it is called, so a stream has nothing to order."""

    cuda_stream = 0
    stream_id = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)

    def synchronize(self) -> None: ...
    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Event:
    """Code that measures itself reads a millisecond, whatever it measured."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def record(self, stream: Any = None) -> None: ...
    def wait(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 1.0


def _host(device: Any) -> Any:
    """The CPU in place of a CUDA device, by whatever name it was asked for."""
    if isinstance(device, bool):
        return device
    if isinstance(device, int):
        return torch.device("cpu")
    kind = (
        device.type if isinstance(device, torch.device) else device.split(":")[0] if isinstance(device, str) else None
    )
    return torch.device("cpu") if kind == "cuda" else device


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if keywords.get("device") is not None:
            keywords["device"] = _host(keywords["device"])
        if keywords.get("pin_memory"):
            keywords["pin_memory"] = False
        return function(*arguments, **keywords)

    return call


def _to(self: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
    if keywords.get("device") is not None:
        keywords["device"] = _host(keywords["device"])
    if arguments and isinstance(arguments[0], str | int | torch.device):
        arguments = (_host(arguments[0]), *arguments[1:])
    return _plain_to(self, *arguments, **keywords)


_plain_to = torch.Tensor.to


def _empty_context(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _refused(feature: str) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise Unsupported(feature)

    return call


def _answer(value: Any) -> Callable[..., Any]:
    """A function of its own (torch's compiler keys its rules by object) that gives one value for any arguments."""

    def call(*_: Any, **__: Any) -> Any:
        return value

    return call


_ANSWERS: dict[str, Any] = {
    "is_available": True, "device_count": 1, "current_device": 0, "init": None, "is_initialized": True, "_lazy_init": None,
    "set_device": None, "synchronize": None, "empty_cache": None, "ipc_collect": None, "get_device_properties": PROPERTIES,
    "get_device_capability": (9, 0), "get_device_name": PROPERTIES.name, "is_bf16_supported": True, "set_stream": None,
    "is_current_stream_capturing": False, "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0,
    "reset_peak_memory_stats": None, "mem_get_info": (PROPERTIES.total_memory, PROPERTIES.total_memory),
    "get_arch_list": ["sm_90"],
}  # fmt: skip


def _module_members() -> dict[str, Any]:
    """Attributes of ``torch.cuda`` that are replaced."""
    stream = _Stream()
    members = {name: _answer(value) for name, value in _ANSWERS.items()}
    members |= {name: _answer(stream) for name in ("current_stream", "default_stream")}
    members |= {name: contextmanager(_empty_context) for name in ("stream", "device", "device_of")}
    members |= {"Stream": _Stream, "ExternalStream": _Stream, "Event": _Event}
    members |= {name: _refused(f"torch.cuda.{name}") for name in ("CUDAGraph", "graph", "make_graphed_callables")}
    return members


def _eager(model: Any = None, **_: Any) -> Any:
    """``torch.compile`` without compiling: the same values, and nothing that needs a compiler."""
    return (lambda function: function) if model is None else model


def install() -> None:
    """Replace members of torch in this process. Call once, before a candidate is imported."""
    for name, member in _module_members().items():
        setattr(torch.cuda, name, member)
    for name in _FACTORIES:
        if hasattr(torch, name):
            setattr(torch, name, _on_host(getattr(torch, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, _on_host(getattr(torch.Tensor, name)))
    members: dict[str, Any] = {
        "to": _to,
        "cuda": lambda self, *_, **__: self,
        "is_cuda": property(lambda self: True),
        "pin_memory": lambda self, *_: self,
        "record_stream": lambda self, *_: None,
        "get_device": lambda self: 0,
    }
    for name, member in members.items():
        setattr(torch.Tensor, name, member)
    torch.compile = _eager
