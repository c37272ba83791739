"""What a process asked of the GPU's L2 cache: room for persisting lines, and a window of addresses that stay.

Either keeps data in the cache from one call to the next, so that calls look faster than they are on fresh data.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_LIMIT_PERSISTING_L2_BYTES = 6
_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1


class _Window(ctypes.Structure):
    # CUaccessPolicyWindow inside CUlaunchAttributeValue, which is 64 bytes long.
    _fields_ = [
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("rest", ctypes.c_char * 32),
    ]


class L2Settings:
    """Reads them through the driver, whose functions are looked up before any candidate is imported.

    Room for persisting lines is given up at once: a driver may start with some, and timing takes it away in any case.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        torch.cuda.current_stream()  # makes the context, whose limit it is
        library.cuCtxSetLimit(ctypes.c_int(_LIMIT_PERSISTING_L2_BYTES), ctypes.c_size_t(0))
        self._limit = library.cuCtxGetLimit
        self._attribute = getattr(library, "cuStreamGetAttribute", None)

    def now(self) -> dict[str, Any]:
        """By the name a reader would know them by; what the driver does not tell is left out."""
        found: dict[str, Any] = {}
        limit = ctypes.c_size_t()
        if self._limit(ctypes.byref(limit), ctypes.c_int(_LIMIT_PERSISTING_L2_BYTES)) == 0:
            found["bytes set aside for persisting L2 lines"] = limit.value
        window, stream = _Window(), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if self._attribute is not None:
            code = self._attribute(stream, ctypes.c_int(_ATTRIBUTE_ACCESS_POLICY_WINDOW), ctypes.byref(window))
            if code == 0:
                found["bytes in the stream's L2 access policy window"] = window.bytes
        return found
