"""``torch.cuda`` as a candidate's host code would find it on the target, with no driver: figures of the target, empty actions."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch


class _Stream:
    cuda_stream = 0
    device = torch.device("cuda", 0)
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0)

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def record_event(self, *_: Any) -> _Stream:
        return self

    def synchronize(self) -> None: ...
    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def wait_stream(self, *_: Any) -> None: ...
    def wait_event(self, *_: Any) -> None: ...
    def replay(self) -> None: ...
    def reset(self) -> None: ...
    def capture_begin(self, *_: Any, **__: Any) -> None: ...
    def capture_end(self) -> None: ...
    def pool(self) -> tuple[int, int]:
        return (0, 0)


class CudaFace:
    """Replaces ``torch.cuda``'s functions for good: meant for a process that serves one candidate."""

    def __init__(self) -> None:
        self.compiled = False
        self._properties = types.SimpleNamespace()

    def show(self, arch: str, hardware: dict[str, Any] | None) -> None:
        """Show this GPU's figures from now on."""
        figures = hardware or {}
        digits = arch.removeprefix("sm_")
        major, minor = (int(digits[:-1]), int(digits[-1])) if digits.isdigit() else (9, 4)
        per_sm = int(figures.get("shared_per_sm_bytes", 65536))
        self._properties = types.SimpleNamespace(
            name=str(figures.get("name") or figures.get("key") or arch),
            major=major,
            minor=minor,
            multi_processor_count=int(figures.get("sms", 132)),
            total_memory=int(figures.get("memory_bytes", 80 << 30)),
            warp_size=64 if arch.startswith("gfx") else 32,
            shared_memory_per_multiprocessor=per_sm,
            shared_memory_per_block=49152,
            shared_memory_per_block_optin=int(figures.get("shared_per_block_bytes", per_sm)),
            regs_per_multiprocessor=int(figures.get("registers_per_sm", 65536)),
            max_threads_per_multi_processor=32 * int(figures.get("max_warps_per_sm", 64)),
            max_threads_per_block=1024,
            L2_cache_size=int(figures.get("l2_bytes", 50 << 20)),
            gcnArchName=arch,
            is_integrated=0,
            is_multi_gpu_board=0,
        )

    def install(self) -> None:
        """Put the stand-ins in place."""
        for name, value in self._stand_ins().items():
            setattr(torch.cuda, name, value)
        torch.compile = self._compile
        torch.nn.Module.compile = lambda module, *_, **__: self._note_compile()  # type: ignore[method-assign]
        torch.Generator = _Generator  # type: ignore[misc,assignment]

    def _note_compile(self) -> None:
        self.compiled = True

    def _compile(self, model: Any = None, *_: Any, **options: Any) -> Any:
        if model is None:
            return lambda function: self._compile(function, **options)

        def run(*args: Any, **kwargs: Any) -> Any:
            # Only a function that is called counts, not one that is merely decorated.
            self._note_compile()
            return model(*args, **kwargs)

        return run

    def _stand_ins(self) -> dict[str, Any]:
        context = contextlib.nullcontext
        stream = _Stream()
        actions = (
            "synchronize",
            "set_device",
            "empty_cache",
            "init",
            "reset_peak_memory_stats",
            "set_stream",
            "manual_seed",
            "_sleep",
        )
        return {name: _nothing() for name in actions} | {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "get_device_properties": lambda *_: self._properties,
            "get_device_capability": lambda *_: (self._properties.major, self._properties.minor),
            "get_device_name": lambda *_: self._properties.name,
            "is_bf16_supported": lambda *_, **__: True,
            "get_arch_list": lambda: [f"sm_{self._properties.major}{self._properties.minor}"],
            "current_stream": lambda *_: stream,
            "default_stream": lambda *_: stream,
            "Stream": _Stream,
            "ExternalStream": _Stream,
            "Event": _Stream,
            "CUDAGraph": _Stream,
            "graph": lambda *_, **__: context(),
            "make_graphed_callables": lambda function, *_, **__: function,
            "stream": lambda *_: context(),
            "device": lambda *_: context(),
            "device_of": lambda *_: context(),
            "memory_allocated": lambda *_: 0,
            "max_memory_allocated": lambda *_: 0,
            "mem_get_info": lambda *_: (self._properties.total_memory, self._properties.total_memory),
        }


def _nothing() -> Any:
    # One function for each name: torch._dynamo, if somebody imports it, refuses one that stands for several.
    return lambda *_, **__: None


_REAL_GENERATOR = torch.Generator


class _GeneratorType(type):
    """A type still, because annotations and ``isinstance`` use it; calling it forgets the device."""

    def __call__(cls, device: Any = None) -> Any:
        return _REAL_GENERATOR("cpu")

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _REAL_GENERATOR)


class _Generator(metaclass=_GeneratorType):
    """Stands for ``torch.Generator``, which refuses a device that this build of torch does not have."""
