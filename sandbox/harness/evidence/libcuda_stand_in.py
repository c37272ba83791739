"""A CUDA driver library of our own making, for the one caller that will not bind arguments without one.

cuTile looks the driver's functions up through ``cuGetProcAddress``. Here every function that it looks up answers
"success" and does nothing, except those that report a version. Nothing can be launched through it.
"""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_LOOKUP = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p
)
_DRIVER_VERSION = 13040
_MODULE = "cuda.tile._load_libcuda"
_kept: dict[str, Any] = {}


def _answer(name: str) -> Any:
    def function(first: int | None, *_: int | None) -> int:
        if name == "cuDriverGetVersion" and first:
            ctypes.cast(first, ctypes.POINTER(ctypes.c_int))[0] = _DRIVER_VERSION
        return 0

    return _FUNCTION(function)


def _look_up(symbol: bytes, result: Any, _version: int, _flags: int, status: int | None) -> int:
    name = symbol.decode()
    if name not in _kept:
        _kept[name] = _answer(name)
    result[0] = ctypes.cast(_kept[name], ctypes.c_void_p).value
    if status:
        ctypes.cast(status, ctypes.POINTER(ctypes.c_int))[0] = 0
    return 0


def install() -> None:
    """Let ``cuda.tile`` find this instead of ``libcuda.so.1``."""
    if _MODULE in sys.modules:
        return
    lookup = _LOOKUP(_look_up)
    pointer = ctypes.c_void_p(ctypes.cast(lookup, ctypes.c_void_p).value)
    _kept["lookup"], _kept["pointer"] = lookup, pointer
    module = types.ModuleType(_MODULE)
    module.cuGetProcAddress_v2_ptrptr = ctypes.addressof(pointer)  # type: ignore[attr-defined]
    sys.modules[_MODULE] = module
