"""Memory that the judge owns and a worker shares: a sealed memory file on the CPU, one CUDA allocation shared by IPC.

An arena holds only what its worker may see: inputs given and outputs taken. A CUDA handle exposes its whole allocation,
so each arena is an allocation of its own and expected outputs never lie in one.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 512
_F_ADD_SEALS, _F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 1, 2, 4
_IPC_HANDLE_BYTES = 64


class ArenaError(RuntimeError):
    """Memory could not be had or shared; the text says how much and why."""


class HostArena:
    """Shared memory of a fixed size; a worker cannot resize it (a shrunk file would crash the judge)."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self._map = mmap.mmap(fd, size)

    @classmethod
    def create(cls, size: int) -> HostArena:
        """New, zeroed, in the judge.

        Raises:
            ArenaError: if there is not so much memory.
        """
        free = _available_bytes()
        if size > free:
            raise ArenaError(f"{size} bytes of shared memory are needed, {free} are free")
        fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL)
        return cls(fd, size)

    def message(self) -> tuple[dict[str, Any], list[int]]:
        """What the worker needs to attach: an object and the descriptors to send along."""
        return {"kind": "cpu", "size": self.size}, [self.fd]

    def memory(self, offset: int, size: int) -> Tensor:
        """The bytes as a uint8 tensor whose storage is exactly them."""
        if size == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=offset)

    def close(self) -> None:
        """Forget the file; the memory itself goes when the last tensor over it does."""
        os.close(self.fd)


class CudaArena:
    """One CUDA allocation, made by the judge or opened by a worker of the same user."""

    def __init__(self, pointer: int, size: int, device: torch.device, *, owned: bool) -> None:
        self.pointer, self.size, self.device, self._owned = pointer, size, device, owned

    @classmethod
    def create(cls, size: int, device: torch.device) -> CudaArena:
        """New, in the judge, filled with 0xFF: the driver clears what other processes had, not what this one freed before,
        which may have been expected outputs.

        Raises:
            ArenaError: if the device has not so much memory.
        """
        _make_context(device)
        pointer = ctypes.c_uint64()
        _driver_call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        made = cls(int(pointer.value), size, device, owned=True)
        try:
            _driver_call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0xFF), ctypes.c_size_t(size))
            _driver_call("cuCtxSynchronize")  # another process will see it, which no stream orders
        except ArenaError:
            made.close()
            raise
        return made

    @classmethod
    def attach(cls, handle: bytes, size: int, device: torch.device) -> CudaArena:
        """Open the judge's allocation in a worker.

        Raises:
            ArenaError: if the driver refuses.
        """
        _make_context(device)
        pointer, raw = ctypes.c_uint64(), _IpcHandle.from_buffer_copy(handle)
        _driver_call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), raw, ctypes.c_uint(1))
        return cls(int(pointer.value), size, device, owned=False)

    def message(self) -> tuple[dict[str, Any], list[int]]:
        """What the worker needs to attach: an object and the descriptors to send along."""
        handle = _IpcHandle()
        _driver_call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(self.pointer))
        return {"kind": "cuda", "size": self.size, "device": str(self.device), "handle": bytes(handle).hex()}, []

    def memory(self, offset: int, size: int) -> Tensor:
        """The bytes as a uint8 tensor whose storage is exactly them."""
        if size == 0:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        return torch.as_tensor(_CudaBytes(self.pointer + offset, size), device=self.device)

    def close(self) -> None:
        """Free (judge) or unmap (worker) the allocation."""
        name = "cuMemFree_v2" if self._owned else "cuIpcCloseMemHandle"
        _driver_call(name, ctypes.c_uint64(self.pointer))


Arena = HostArena | CudaArena


def attach(message: dict[str, Any], fds: list[int]) -> Arena:
    """In a worker: the arena that the judge announced."""
    if message["kind"] == "cpu":
        return HostArena(fds[0], int(message["size"]))
    device = torch.device(message["device"])
    return CudaArena.attach(bytes.fromhex(message["handle"]), int(message["size"]), device)


def create(size: int, device: torch.device) -> Arena:
    """In the judge: a new arena on a device.

    Raises:
        ArenaError: if there is not so much memory.
    """
    rounded = max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
    return CudaArena.create(rounded, device) if device.type == "cuda" else HostArena.create(rounded)


def copy_on_device(target: int, source: int, size: int, stream: int) -> None:
    """Copy bytes between CUDA addresses in stream order, below anything Python can patch.

    Raises:
        ArenaError: if the driver reports an error (also a pending one of an earlier kernel).
    """
    _driver_call(
        "cuMemcpyDtoDAsync_v2",
        ctypes.c_uint64(target),
        ctypes.c_uint64(source),
        ctypes.c_size_t(size),
        ctypes.c_void_p(stream),
    )


def fill_on_device(target: int, byte: int, size: int, stream: int) -> None:
    """Write a byte over CUDA memory in stream order, below anything Python can patch.

    Raises:
        ArenaError: as :func:`copy_on_device`.
    """
    _driver_call(
        "cuMemsetD8Async",
        ctypes.c_uint64(target),
        ctypes.c_ubyte(byte),
        ctypes.c_size_t(size),
        ctypes.c_void_p(stream),
    )


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * _IPC_HANDLE_BYTES)]


class _CudaBytes:
    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


_driver: ctypes.CDLL | None = None


def _driver_call(name: str, *arguments: object) -> None:
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL("libcuda.so.1")
    code = int(getattr(_driver, name)(*arguments))
    if code:
        text = ctypes.c_char_p()
        _driver.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        raise ArenaError(f"{name} failed with CUDA error {code} ({(text.value or b'unknown').decode()})")


def _make_context(device: torch.device) -> None:
    """The driver calls above need the device's primary context to be this thread's current one."""
    torch.cuda.set_device(device)
    torch.empty(1, device=device)


def _available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62
