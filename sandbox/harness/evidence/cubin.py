"""Registers, stack and shared memory of a kernel, read from its cubin without starting a program.

A cubin is an ELF file. Section ``.nv.info`` holds records of (format, attribute, size, payload); those read here carry
(symbol, value) pairs. The numbers agree with ``cuobjdump -res-usage`` and with what ``cuFuncGetAttribute`` says after loading.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SIZED = 4
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_REGCOUNT = 0x2F
_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10


class NotACubin(ValueError):
    """The bytes are no ELF file of the kind that ptxas writes."""


@dataclass(frozen=True)
class KernelUse:
    """Per thread registers and stack bytes; static shared memory a block in bytes; code size in bytes; threads a block if fixed."""

    name: str
    registers: int
    stack_bytes: int
    static_shared_bytes: int
    code_bytes: int
    threads: int | None


def kernels(image: bytes) -> list[KernelUse]:
    """All kernels of a cubin.

    Raises:
        NotACubin: if the bytes are not a 64-bit little-endian ELF file.
    """
    sections = _sections(image)
    names = _symbols(image, sections)
    registers: dict[str, int] = {}
    stack: dict[str, int] = {}
    threads: dict[str, int] = {}
    for section, kind, payload in _info_records(image, sections):
        if kind in (_MAX_THREADS, _REQUIRED_THREADS) and len(payload) == 12:
            x, y, z = struct.unpack("<III", payload)
            threads[section.removeprefix(".nv.info.")] = x * y * z
        if section != ".nv.info" or len(payload) < 8:
            continue
        symbol, value = struct.unpack_from("<II", payload)
        name = names.get(symbol, "")
        if kind == _REGCOUNT:
            registers[name] = value
        elif kind in (_FRAME_SIZE, _MIN_STACK_SIZE):
            stack[name] = max(stack.get(name, 0), value)
    return [
        KernelUse(
            name=name,
            registers=registers[name],
            stack_bytes=stack.get(name, 0),
            static_shared_bytes=sections.get(".nv.shared." + name, (0, 0, 0, 0))[1],
            code_bytes=size,
            threads=threads.get(name),
        )
        for section, (_, size, _, _) in sections.items()
        if section.startswith(".text.") and (name := section.removeprefix(".text.")) in registers
    ]


def _sections(image: bytes) -> dict[str, tuple[int, int, int, int]]:
    """Name -> (offset, size, type, link)."""
    if image[:5] != b"\x7fELF\x02" or len(image) < 64:
        raise NotACubin(f"{len(image)} bytes that begin with {image[:4]!r}")
    (start,) = struct.unpack_from("<Q", image, 0x28)
    entry, count, strings = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, start + entry * i) for i in range(count)]
    base = headers[strings][4]
    return {_text(image, base + header[0]): (header[4], header[5], header[1], header[6]) for header in headers}


def _text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode("utf-8", "replace")


def _symbols(image: bytes, sections: dict[str, tuple[int, int, int, int]]) -> dict[int, str]:
    offset, size, _, _ = sections.get(".symtab", (0, 0, 0, 0))
    base = sections.get(".strtab", (0, 0, 0, 0))[0]
    return {i: _text(image, base + struct.unpack_from("<I", image, offset + 24 * i)[0]) for i in range(size // 24)}


def _info_records(image: bytes, sections: dict[str, tuple[int, int, int, int]]) -> list[tuple[str, int, bytes]]:
    records = []
    for name, (offset, size, _, _) in sections.items():
        if not name.startswith(".nv.info"):
            continue
        at, end = offset, offset + size
        while at + 4 <= end:
            form, kind, length = struct.unpack_from("<BBH", image, at)
            at += 4
            if form == _SIZED:
                records.append((name, kind, image[at : at + length]))
                at += length
    return records
