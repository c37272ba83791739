"""What a candidate must leave as it found it: settings, environment, random state, hooks, clocks and library functions.

A snapshot is taken before the candidate's code runs and compared later. The findings are evidence against a candidate
(nobody forges evidence against himself); their absence proves nothing, which is why the judge checks values by itself.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from tilecast.sandbox.harness.worker.bindings import Bindings
from tilecast.sandbox.harness.worker.findings import Finding
from tilecast.sandbox.harness.worker.l2_settings import L2Settings

__all__ = ["Bindings", "CallState", "Finding", "HostGenerators", "false_clocks"]

_LIBRARY_VARIABLES = ("_TORCHINDUCTOR_",)
"""Set by torch itself when something is first compiled."""
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
_PROCESSORS = "processors it may run on"
_pinned: set[tuple[int, ...]] = set()
"""Processors that the judge pinned this process to, for timing: no doing of the candidate's."""
_NUMERICAL = (
    "torch.get_default_dtype()",
    "torch.get_float32_matmul_precision()",
    "torch.are_deterministic_algorithms_enabled()",
    "torch.backends.cudnn.allow_tf32",
    "reduced precision reductions",
    "torch.get_flush_denormal",
    "torch.backends.mkldnn.enabled",
    "torch.backends.cudnn.enabled",
    "scaled dot product backends",
)
"""Settings of how torch computes: where a problem's reference makes one, it is part of the problem."""
_granted: dict[str, str] = {}
"""Those that the reference makes, with its values (as ``repr``)."""
_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_parameter_registration_hooks",
    "_global_module_registration_hooks",
    "_global_buffer_registration_hooks",
)


_BACKENDS = (("generic", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"), ("mkldnn", "matmul"))


def _precision(read: Callable[[], Any]) -> Any:
    """One of torch's older settings of precision; what the newer ones say where it refuses to be told beside them."""
    try:
        return read()
    except RuntimeError:
        newer = torch._C._get_fp32_precision_getter
        return {f"{backend} {operator}": newer(backend, operator) for backend, operator in _BACKENDS}


def _settings() -> dict[str, Any]:
    """Process-wide settings by the name a reader would know them by."""
    return {
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
        "torch.get_float32_matmul_precision()": _precision(torch.get_float32_matmul_precision),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.is_autocast_enabled('cpu')": torch.is_autocast_enabled("cpu"),
        "torch.is_autocast_enabled('cuda')": torch.is_autocast_enabled("cuda"),
        "torch.backends.cudnn.allow_tf32": _precision(torch._C._get_cudnn_allow_tf32),
        "reduced precision reductions": (
            torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
            torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
        ),
        "torch.get_flush_denormal": _flushes_denormals(),
        "torch.is_anomaly_enabled()": torch.is_anomaly_enabled(),
        "torch.backends.mkldnn.enabled": torch._C._get_mkldnn_enabled(),
        "torch.backends.cudnn.enabled": torch._C._get_cudnn_enabled(),
        "scaled dot product backends": (
            torch._C._get_flash_sdp_enabled(),
            torch._C._get_mem_efficient_sdp_enabled(),
            torch._C._get_math_sdp_enabled(),
            torch._C._get_cudnn_sdp_enabled(),
        ),
        "open torch function modes": torch._C._len_torch_function_stack(),
        "open torch dispatch modes": torch._C._len_torch_dispatch_stack(),
        "global module hooks": sum(len(getattr(nn_module, name, ())) for name in _HOOKS),
        "interval timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "signal handlers": tuple(repr(signal.getsignal(n)) for n in (signal.SIGALRM, signal.SIGUSR1, signal.SIGPROF)),
        "garbage collector callbacks": len(gc.callbacks),
        "gc.isenabled()": gc.isenabled(),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        _PROCESSORS: tuple(sorted(os.sched_getaffinity(0))),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
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
            Finding("global-state", f"{name} was {value!r}, is now {now!r}")
            for name, value in self.settings.items()
            if (now := later.settings.get(name)) != value and not _is_the_judges(name, now)
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

    def numerical_changes(self, later: CallState) -> dict[str, str]:
        """Settings of how torch computes that are others later, with their values then (as ``repr``)."""
        return {name: repr(later.settings[name]) for name in _NUMERICAL if later.settings[name] != self.settings[name]}

    def rng_changed(self, later: CallState) -> bool:
        """Whether a global random generator of torch moved."""
        return self.rng != later.rng or self.cuda_rng != later.cuda_rng


def pinned(processors: set[int]) -> None:
    """The judge has put this process on these processors."""
    _pinned.add(tuple(sorted(processors)))


def grant(settings: dict[str, str]) -> None:
    """A candidate may set these as the reference does."""
    _granted.update({name: value for name, value in settings.items() if name in _NUMERICAL})


def _is_the_judges(name: str, value: Any) -> bool:
    """Whether it was the judge who set it, or his reference that does so too."""
    return value in _pinned if name == _PROCESSORS else _granted.get(name) == repr(value)


class _Timespec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


_CLOCK_GETTIME = ctypes.CDLL(None).clock_gettime
_CLOCKS: tuple[tuple[str, Callable[[], float], int, float], ...] = (
    ("time.perf_counter", time.perf_counter, time.CLOCK_MONOTONIC, 1.0),
    ("time.perf_counter_ns", time.perf_counter_ns, time.CLOCK_MONOTONIC, 1e-9),
    ("time.monotonic", time.monotonic, time.CLOCK_MONOTONIC, 1.0),
    ("time.monotonic_ns", time.monotonic_ns, time.CLOCK_MONOTONIC, 1e-9),
    ("time.time", time.time, time.CLOCK_REALTIME, 1.0),
    ("time.time_ns", time.time_ns, time.CLOCK_REALTIME, 1e-9),
)
_CLOCK_SLACK_S, _CLOCK_TRIES = 0.001, 3


def _system_clock_s(which: int) -> float:
    now = _Timespec()
    _CLOCK_GETTIME(which, ctypes.byref(now))
    return float(now.s) + float(now.ns) * 1e-9


def false_clocks() -> list[Finding]:
    """Python's clocks that do not tell what the C library's do: same objects, other code beneath."""
    found = []
    for name, clock, which, unit in _CLOCKS:
        for _ in range(_CLOCK_TRIES):  # the time of day may be set while it is read
            before, told, after = _system_clock_s(which), clock() * unit, _system_clock_s(which)
            if before - _CLOCK_SLACK_S <= told <= after + _CLOCK_SLACK_S:
                break
        else:
            found.append(Finding("patched", f"{name}() says {told:.6f} s where the system's clock says {after:.6f} s"))
    return found


_RANDOM_DRAW, _RANDOM_STATE = random.random, random.getstate


class HostGenerators:
    """The global generators of Python and numpy: a forward may draw from them, but not set them to the same state each time.

    They are moved on before every call, so that a state which comes back was put there. One for each module: what a module does
    in its first call alone, another may do in its.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def advance(self) -> list[int]:
        """Move them on; returns their states."""
        _RANDOM_DRAW()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.random()
        return self._states()

    def set_again(self, before: list[int]) -> list[Finding]:
        """After a call: generators that it left in a state which an earlier call left them in."""
        found = []
        for name, old, new in zip(("Python", "numpy"), before, self._states(), strict=False):
            if new != old and new in self._seen:
                found.append(
                    Finding("rng", f"the global random generator of {name} is set to the same state again and again")
                )
            if new != old:
                self._seen.add(new)
        return found

    def _states(self) -> list[int]:
        states = [hash(_RANDOM_STATE())]
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            kind, keys, *place = numpy.random.get_state()
            states.append(hash((kind, keys.tobytes(), *place)))
        return states
