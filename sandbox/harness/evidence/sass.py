"""Static instruction counts from a disassembly by ``nvdisasm -c``."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_LINE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)([A-Z0-9_.a-z]*)([^;]*)")
_LABEL = re.compile(r"^(\.L[\w.]*):")
_TARGET = re.compile(r"`\((\.L[\w.]*)\)")

_GROUPS: dict[str, frozenset[str]] = {
    "async_copy": frozenset({"LDGSTS"}),
    "bulk_copy": frozenset({"UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"}),
    "shared_load": frozenset({"LDS"}),
    "shared_store": frozenset({"STS"}),
    "matrix_shared_load": frozenset({"LDSM", "STSM"}),
    "barriers": frozenset({"BAR", "SYNCS", "UCGABAR_ARV", "UCGABAR_WAIT"}),
    "special_function": frozenset({"MUFU"}),
    "local_load": frozenset({"LDL"}),
    "local_store": frozenset({"STL"}),
    "atomics": frozenset({"ATOM", "ATOMG", "ATOMS", "RED", "REDG"}),
    "fma": frozenset(
        [
            "FFMA",
            "FMUL",
            "FADD",
            "FFMA2",
            "FMUL2",
            "FADD2",
            "HFMA2",
            "HMUL2",
            "HADD2",
            "DFMA",
            "DMUL",
            "DADD",
            "FFMA32I",
            "FMUL32I",
            "FADD32I",
            "HFMA2_MMA",
        ]
    ),
    "integer": frozenset(
        [
            "IMAD",
            "IADD3",
            "LEA",
            "LOP3",
            "SHF",
            "ISETP",
            "IMNMX",
            "VIADD",
            "VIMNMX",
            "IABS",
            "POPC",
            "FLO",
            "SGXT",
            "BFE",
            "BFI",
            "IADD",
        ]
    ),
    "convert": frozenset(["F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2I", "FRND", "I2IP"]),
    "shuffle": frozenset({"SHFL", "REDUX"}),
    "register_reallocation": frozenset({"USETMAXREG"}),
    "branches": frozenset({"BRA", "BRX", "JMP", "BRXU"}),
}
_FLOAT_NOT_TENSOR = frozenset({"HFMA2_MMA"})
_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}


def _is_tensor(base: str) -> bool:
    return base.endswith("MMA") and base not in _FLOAT_NOT_TENSOR


def _width(modifiers: str) -> str:
    return str(next((_WIDTHS[part] for part in modifiers.split(".") if part in _WIDTHS), 32))


def part(listing: str, function: str) -> str:
    """The lines of one function's section; all of them if it has none of its own."""
    pieces = re.split(r"^(?=\s*\.section\s)", listing, flags=re.M)
    return next((piece for piece in pieces if f".text.{function}," in piece.split("\n", 1)[0]), listing)


def instruction_mix(listing: str) -> dict[str, Any]:
    """Counts of one kernel's listing; the fields are those of :class:`InstructionMix`."""
    code, labels = _parse(listing)
    opcodes = Counter(base for base, _, _ in code)
    mix: dict[str, Any] = {"total": len(code)}
    for name, members in _GROUPS.items():
        mix[name] = sum(opcodes[member] for member in members)
    kinds = Counter(base + modifiers for base, modifiers, _ in code if _is_tensor(base))
    mix["tensor_core"] = sum(kinds.values())
    mix["tensor_core_kinds"] = dict(kinds.most_common(8))
    for field, bases in (("global_load_bits", ("LDG", "LD")), ("global_store_bits", ("STG", "ST"))):
        mix[field] = dict(Counter(_width(modifiers) for base, modifiers, _ in code if base in bases))
    mix["opcodes"] = dict(opcodes.most_common(60))
    mix["loop"] = _longest_loop(code, labels)
    return mix


def _parse(listing: str) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    code: list[tuple[str, str, str]] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if found := _LINE.match(line):
            code.append((found[1], found[2], found[3]))
        elif found := _LABEL.match(line):
            labels[found[1]] = len(code)
    # The padding behind the last instruction is no part of the kernel.
    while code and code[-1][0] == "NOP":
        code.pop()
    return code, labels


_MEMORY = frozenset({"LDG", "LD", "STG", "ST", "LDS", "STS", "LDL", "STL", "MUFU"})
_WORK = _MEMORY | _GROUPS["fma"] | _GROUPS["async_copy"] | _GROUPS["bulk_copy"]


def _works(base: str) -> bool:
    return base in _WORK or _is_tensor(base)


def _longest_loop(code: list[tuple[str, str, str]], labels: dict[str, int]) -> dict[str, int]:
    loops = []
    for at, (base, _, rest) in enumerate(code):
        found = _TARGET.search(rest) if base == "BRA" else None
        # A branch to itself is the trap behind the last instruction.
        if found and labels.get(found[1], at) < at:
            loops.append((labels[found[1]], at))
    # A loop that only waits for a barrier is none of the kernel's own; it may stand inside the main one.
    loops = [loop for loop in loops if any(_works(base) for base, _, _ in code[loop[0] : loop[1] + 1])]
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    if not inner:
        return {}
    first, last = max(inner, key=lambda loop: loop[1] - loop[0])
    body = Counter(base for base, _, _ in code[first : last + 1])
    return {
        "total": last + 1 - first,
        "tensor_core": sum(n for base, n in body.items() if _is_tensor(base)),
        "global_load": body["LDG"] + body["LD"],
        "global_store": body["STG"] + body["ST"],
        "async_copy": body["LDGSTS"],
        "bulk_copy": sum(body[member] for member in _GROUPS["bulk_copy"]),
        "barriers": sum(body[member] for member in _GROUPS["barriers"]),
        "shared_load": body["LDS"] + body["LDSM"],
        "shared_store": body["STS"] + body["STSM"],
        "local": body["LDL"] + body["STL"],
        "special_function": body["MUFU"],
        "fma": sum(body[member] for member in _GROUPS["fma"]),
    }
