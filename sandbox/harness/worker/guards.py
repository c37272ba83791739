"""What a candidate must leave as it found it: settings, environment, random state, hooks, clocks and library functions.

A snapshot is taken before the candidate's code runs and compared later. The findings are evidence against a candidate
(nobody forges evidence against himself); their absence proves nothing, which is why the judge checks values by itself.
"""

from __future__ import annotations

import builtins
import gc
import os
import random
import signal
import statistics
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from tilecast.sandbox.harness.worker.l2_settings import L2Settings

_LIBRARY_VARIABLES = ("_TORCHINDUCTOR_",)
"""Set by torch itself when something is first compiled."""
_COMPILERS = ("torch._dynamo.", "torch._inductor.", "torch._functorch.")
_BUILD_VARIABLES = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDA_HOME",
    "CUDA_PATH",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "MAX_JOBS",
    "PATH",
    "TRITON_",
    "TORCHINDUCTOR_",
    "TORCH_EXTENSIONS_DIR",
    "CUDA_TILE_",
    "CUTE_",
    "PYTORCH_NVCC",
)
_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_parameter_registration_hooks",
    "_global_module_registration_hooks",
    "_global_buffer_registration_hooks",
)


@dataclass(frozen=True)
class Finding:
    """One thing that changed: the rule and the evidence in words."""

    rule: str
    detail: str

    def to_message(self) -> dict[str, str]:
        """As plain JSON."""
        return {"rule": self.rule, "detail": self.detail[:300]}


def _settings() -> dict[str, Any]:
    """Process-wide settings by the name a reader would know them by."""
    return {
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.is_autocast_enabled('cpu')": torch.is_autocast_enabled("cpu"),
        "torch.is_autocast_enabled('cuda')": torch.is_autocast_enabled("cuda"),
        "torch.backends.cudnn.allow_tf32": torch._C._get_cudnn_allow_tf32(),
        "reduced precision reductions": (
            torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
            torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
        ),
        "torch.get_flush_denormal": _flushes_denormals(),
        "open torch function modes": torch._C._len_torch_function_stack(),
        "open torch dispatch modes": torch._C._len_torch_dispatch_stack(),
        "global module hooks": sum(len(getattr(nn_module, name, ())) for name in _HOOKS),
        "interval timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "signal handlers": tuple(repr(signal.getsignal(n)) for n in (signal.SIGALRM, signal.SIGUSR1, signal.SIGPROF)),
        "garbage collector callbacks": len(gc.callbacks),
        "sys.settrace": sys.gettrace() is not None or sys.getprofile() is not None,
        "working folder": os.getcwd(),
    }


def _is_torchs_own_assembler(name: str, value: str | None) -> bool:
    """``torch.compile`` points Triton to the assembler that torch brings, when something is first compiled."""
    if not name.startswith("TRITON_PTXAS") or value is None:
        return False
    return os.path.realpath(value).startswith(
        os.path.join(os.path.realpath(os.path.dirname(torch.__file__)), "bin", "")
    )


@cache
def _l2_settings() -> L2Settings:
    """Made at the first snapshot, which is taken before a candidate is imported."""
    return L2Settings()


def _flushes_denormals() -> bool:
    tiny = 2.0**-1074
    return tiny * 1.0 == 0.0


@dataclass(frozen=True)
class CallState:
    """What is compared around every call."""

    settings: dict[str, Any]
    environment: dict[str, str]
    rng: bytes
    cuda_rng: bytes
    stream: tuple[int, int] | None

    @classmethod
    def take(cls, cuda: bool) -> CallState:
        """Now."""
        stream, cuda_rng = None, b""
        if cuda:
            stream = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
            cuda_rng = torch.cuda.get_rng_state().numpy().tobytes()
        rng = torch.default_generator.get_state().numpy().tobytes()
        settings = _settings() | (_l2_settings().now() if cuda else {})
        return cls(settings, dict(os.environ), rng, cuda_rng, stream)

    def changes(self, later: CallState, *, importing: bool = False) -> list[Finding]:
        """What differs later. While a file is imported it may set variables that compilers read."""
        found = [
            Finding("global-state", f"{name} was {value!r}, is now {later.settings[name]!r}")
            for name, value in self.settings.items()
            if later.settings[name] != value
        ]
        for name in sorted(set(self.environment) | set(later.environment)):
            if name.startswith(_LIBRARY_VARIABLES):
                continue
            before, after = self.environment.get(name), later.environment.get(name)
            if before is None and _is_torchs_own_assembler(name, after):
                continue
            if before != after and not (importing and name.startswith(_BUILD_VARIABLES)):
                found.append(Finding("environment", f"variable {name} was {before!r}, is now {after!r}"))
        if later.stream != self.stream:
            found.append(Finding("stream", f"current (device, stream) was {self.stream}, is now {later.stream}"))
        return found

    def rng_changed(self, later: CallState) -> bool:
        """Whether a global random generator of torch moved."""
        return self.rng != later.rng or self.cuda_rng != later.cuda_rng


def _watched() -> Iterator[tuple[str, dict[str, Any]]]:
    modules = ("torch.nn.functional", "torch.cuda", "torch.cuda.streams", "torch.testing", "torch.testing._comparison")
    optional = ("triton", "triton.testing", "triton.runtime.autotuner", "numpy", "threading")
    for module in (time, os, gc, random, builtins, statistics, signal, torch):
        yield module.__name__, vars(module)
    for name in (*modules, *optional):
        if name in sys.modules:
            yield name, vars(sys.modules[name])
    for name in sorted(sys.modules):
        if name.startswith("tilecast.sandbox.harness"):
            yield name, vars(sys.modules[name])
    for kind in (torch.Tensor, torch.nn.Module, torch.cuda.Event, torch.cuda.Stream, torch.nn.Parameter):
        yield f"{kind.__module__}.{kind.__qualname__}", dict(vars(kind))
    yield "torch._C.TensorBase", dict(vars(torch._C.TensorBase))


_CALLABLE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


class Bindings:
    """Which functions and classes the watched modules hold. New names are fine, replaced ones are a finding."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[Any, object]] = {
            (place, name): (value, getattr(value, "__code__", None))
            for place, names in _watched()
            for name, value in list(names.items())
            if isinstance(value, _CALLABLE)
        }

    def changes(self) -> list[Finding]:
        """Names that now hold something else, or whose code was swapped."""
        now = dict(_watched())
        found = []
        for (place, name), (value, code) in self._kept.items():
            current = now.get(place, {}).get(name)
            if current is not value and not _compilers_own(current):
                found.append(Finding("patched", f"{place}.{name} was replaced by {_name(current)}"))
            elif current is value and code is not getattr(current, "__code__", None):
                found.append(Finding("patched", f"the code of {place}.{name} was swapped"))
        return found


def _compilers_own(value: object) -> bool:
    """Replaced by torch's own compiler, which does so when something is first compiled: a function of its modules."""
    space = getattr(value, "__globals__", None)
    name = space.get("__name__", "") if isinstance(space, dict) else ""
    module = sys.modules.get(name) if isinstance(name, str) and name.startswith(_COMPILERS) else None
    return module is not None and vars(module) is space


def _name(value: object) -> str:
    kind = type(value).__name__
    return f"{kind} {getattr(value, '__qualname__', '')!s:.60}".strip()
