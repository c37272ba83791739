"""The few questions to NVIDIA's management library that timing asks, through ctypes. Reads only; nothing is ever set.

Structures and constants are those of ``nvml.h`` (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_SUCCESS, _INSUFFICIENT_SIZE, _NOT_FOUND = 0, 7, 6
_CLOCK_SM, _CLOCK_MEMORY = 1, 2

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Clock event reasons under which a time means nothing."""
POWER_CAP = 0x04
CAPS = {0x02: "application clocks", POWER_CAP: "power cap", 0x10: "sync boost", 0x100: "display clocks"}
"""Reasons that are a fact about the card's set-up or its load: reported, not discarded."""


class _ProcessInfo(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Utilization(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("timestamp_us", ctypes.c_ulonglong),
        ("sm_percent", ctypes.c_uint),
        ("memory_percent", ctypes.c_uint),
        ("encoder_percent", ctypes.c_uint),
        ("decoder_percent", ctypes.c_uint),
    ]


class NvmlUnavailable(Exception):
    """The library is missing or does not know the device: windows go unwatched, and the result says so."""


@dataclass(frozen=True)
class Reading:
    """State of the device at one moment; clocks in MHz, -1 where the card does not tell."""

    sm_mhz: int
    memory_mhz: int
    reasons: int
    processes: frozenset[int]


class Nvml:
    """One device, found by its UUID (``GPU-…``): indices of CUDA and of this library need not agree."""

    def __init__(self, uuid: str) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NvmlUnavailable("libnvidia-ml.so.1 is not on this machine") from error
        if self._library.nvmlInit_v2() != _SUCCESS:
            raise NvmlUnavailable("nvmlInit failed: no driver, or no permission")
        self._device = ctypes.c_void_p()
        if self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._device)) != _SUCCESS:
            raise NvmlUnavailable(f"NVML does not know a device {uuid}")
        self._seen_us = 0
        self.busy_processes()  # what it still knows of the time before says nothing of what is watched

    def close(self) -> None:
        """Release the library."""
        self._library.nvmlShutdown()

    def read(self) -> Reading:
        """Clocks, clock event reasons and the processes that hold a compute context."""
        return Reading(self._clock(_CLOCK_SM), self._clock(_CLOCK_MEMORY), self._reasons(), self._processes())

    def busy_processes(self) -> dict[int, int] | None:
        """SM use in percent by process since the last time this was asked; None where the card does not tell."""
        count = ctypes.c_uint(0)
        call = self._library.nvmlDeviceGetProcessUtilization
        last = ctypes.c_ulonglong(self._seen_us)
        code = call(self._device, None, ctypes.byref(count), last)
        if code == _NOT_FOUND:
            return {}
        if code != _INSUFFICIENT_SIZE:
            return None if code != _SUCCESS else {}
        samples = (_Utilization * count.value)()
        if call(self._device, samples, ctypes.byref(count), last) != _SUCCESS:
            return {}
        found: dict[int, int] = {}
        for sample in samples[: count.value]:
            self._seen_us = max(self._seen_us, sample.timestamp_us)
            found[sample.pid] = max(found.get(sample.pid, 0), sample.sm_percent)
        return found

    def _clock(self, kind: int) -> int:
        value = ctypes.c_uint()
        code = self._library.nvmlDeviceGetClockInfo(self._device, kind, ctypes.byref(value))
        return value.value if code == _SUCCESS else -1

    def _reasons(self) -> int:
        value = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            call = getattr(self._library, name, None)
            if call is not None and call(self._device, ctypes.byref(value)) == _SUCCESS:
                return value.value
        return 0

    def _processes(self) -> frozenset[int]:
        count = ctypes.c_uint(64)
        infos = (_ProcessInfo * 64)()
        code = self._library.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), infos)
        if code != _SUCCESS:
            return frozenset()
        return frozenset(info.pid for info in infos[: min(count.value, 64)])
