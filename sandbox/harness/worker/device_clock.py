"""Events, joins, cache flushes and the state of persisting L2, straight from the CUDA driver.

The driver's functions are looked up when the worker starts, before any candidate is imported; nothing here goes through
Python names that a candidate could replace. (It may still tamper with the process in other ways: the judge's own clock
stands behind this one.)

The end marker waits for everything the context has been given so far, on any stream (``cuCtxRecordEvent``, driver 12.5 and
later); on an older driver the device is synchronised before the end marker, which adds the host's wake-up to each time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_EVENT_DEFAULT, _EVENT_NO_TIMING = 0, 2
_LIMIT_PERSISTING_L2_BYTES = 6
_NOT_SUPPORTED = 801
_NAMES = (
    "cuCtxGetCurrent",
    "cuCtxSynchronize",
    "cuCtxSetLimit",
    "cuCtxGetLimit",
    "cuCtxResetPersistingL2Cache",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventElapsedTime",
    "cuStreamWaitEvent",
    "cuMemAlloc_v2",
    "cuMemsetD32Async",
    "cuGetErrorName",
)


class DeviceClockError(RuntimeError):
    """The driver refused something; the text names the call and its error."""


class DeviceClock:
    """Times calls on the legacy default stream, which is the current stream that calls are made on."""

    STREAM = ctypes.c_void_p(0)

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        self._driver: dict[str, Callable[..., int]] = {name: getattr(library, name) for name in _NAMES}
        self._record_context: Callable[..., int] | None = getattr(library, "cuCtxRecordEvent", None)
        self._context = ctypes.c_void_p()
        self._join = ctypes.c_void_p()
        self._pairs: list[tuple[ctypes.c_void_p, ctypes.c_void_p]] = []
        self._flush_address, self._flush_bytes = ctypes.c_uint64(), 0
        self.synchronised_joins = 0
        """How many end markers needed a device synchronisation because the driver could not join the streams."""

    def prepare(self, calls: int, flush_bytes: int) -> None:
        """Events and the flush buffer, before a leg: nothing is allocated within it.

        Raises:
            DeviceClockError: if the driver refuses.
        """
        if not self._context.value:
            self._call("cuCtxGetCurrent", ctypes.byref(self._context))
            self._join = self._event(_EVENT_NO_TIMING)
        while len(self._pairs) < calls:
            self._pairs.append((self._event(_EVENT_DEFAULT), self._event(_EVENT_DEFAULT)))
        if flush_bytes > self._flush_bytes:
            self._call("cuMemAlloc_v2", ctypes.byref(self._flush_address), ctypes.c_size_t(flush_bytes))
            self._flush_bytes = flush_bytes
        self.synchronised_joins = 0

    def synchronize(self) -> None:
        """Wait for all work of the context.

        Raises:
            DeviceClockError: if any of it failed.
        """
        self._call("cuCtxSynchronize")

    def forget_persisting_lines(self) -> None:
        """Turn persisting L2 lines into ordinary ones and leave no room for new ones. The device must be idle.

        A device without persisting lines (before sm_80, or where they are not offered) has none to forget.
        """
        limit = ctypes.c_size_t()
        kind = ctypes.c_int(_LIMIT_PERSISTING_L2_BYTES)
        if self._driver["cuCtxGetLimit"](ctypes.byref(limit), kind) != 0:
            return
        if limit.value:
            self._call("cuCtxSetLimit", kind, ctypes.c_size_t(0))
        code = self._driver["cuCtxResetPersistingL2Cache"]()
        if code not in (0, _NOT_SUPPORTED):
            raise DeviceClockError(f"cuCtxResetPersistingL2Cache: error {code}")

    def flush(self, index: int, times: int = 1) -> None:
        """Overwrite the flush buffer ``times`` times, in stream order, with another value for each index."""
        if self._flush_bytes:
            words = ctypes.c_size_t(self._flush_bytes // 4)
            for _ in range(times):
                self._call("cuMemsetD32Async", self._flush_address, ctypes.c_uint(index + 1), words, self.STREAM)

    def start(self, index: int) -> None:
        """The start marker of a call."""
        self._call("cuEventRecord", self._pairs[index][0], self.STREAM)

    def stop(self, index: int) -> None:
        """The end marker of a call, after everything that any stream of this context was given."""
        if self._record_context is None or self._record_context(self._context, self._join) != 0:
            self.synchronised_joins += 1
            self.synchronize()
        else:
            self._call("cuStreamWaitEvent", self.STREAM, self._join, ctypes.c_uint(0))
        self._call("cuEventRecord", self._pairs[index][1], self.STREAM)

    def elapsed_ms(self, index: int) -> float:
        """Milliseconds between the markers of a call that has ended."""
        value = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(value), self._pairs[index][0], self._pairs[index][1])
        return float(value.value)

    def _event(self, flags: int) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(flags))
        return event

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._driver[name](*arguments)
        if code:
            text = ctypes.c_char_p()
            self._driver["cuGetErrorName"](ctypes.c_int(code), ctypes.byref(text))
            raise DeviceClockError(f"{name}: {(text.value or b'unknown error').decode()}")
