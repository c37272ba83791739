"""An evaluator for the short PTX that kernels put into ``tl.inline_asm_elementwise``: straight-line, register to register.

Registers hold raw bits; each instruction reads them as its type suffix says. Semantics follow the PTX ISA; ``approx``
variants are computed exactly, which is within their stated error.
"""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from . import numerics, special
from .errors import Unsupported
from .ptx_functions import TYPES, compare, function_of, result_of

Array = npt.NDArray[Any]

_PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2", "u16x2": "u16", "s16x2": "s16"}
_IGNORED = ("griddepcontrol", "membar", "fence", "bar", "barrier", "nanosleep", "prefetch", "prefetchu", "discard")
_SPECIAL = {"%smid": 0, "%laneid": 0, "%warpid": 0, "%clock": 0, "%clock64": 0, "%nsmid": 132}
_OPERAND = re.compile(r"\s*<[^>]*>|[^,]+")


class Machine:
    """One block of PTX over arrays of elements."""

    def __init__(self, registers: dict[str, Array]) -> None:
        self.registers = registers

    def run(self, text: str) -> None:
        """Execute every statement in order.

        Raises:
            Unsupported: naming the first instruction that is not known.
        """
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
        for statement in re.split(r";", _outer_braces(text)):
            statement = " ".join(statement.split())
            if statement and not re.fullmatch(r"\.reg .*", statement):
                self._statement(statement)

    def _statement(self, statement: str) -> None:
        guard = None
        if statement.startswith("@"):
            guard_name, _, statement = statement.partition(" ")
            guard = self._raw(guard_name.lstrip("@!")).astype(np.bool_)
            guard = ~guard if "!" in guard_name else guard
        opcode, _, rest = statement.partition(" ")
        operands = [o.strip() for o in _OPERAND.findall(rest)]
        name, *suffixes = opcode.split(".")
        if name in _IGNORED:
            return
        if name == "mov":
            self._move(operands, suffixes, guard)
            return
        if not operands:
            raise Unsupported(f"the inline asm instruction {opcode!r}")
        targets = operands[0].split("|")
        for target, result in zip(targets, self._compute(opcode, name, suffixes, operands[1:]), strict=False):
            self._assign(target.strip(), result, guard)

    def _assign(self, target: str, bits: Array, guard: Array | None) -> None:
        if target == "_":
            return
        if guard is not None and target in self.registers:
            old = self.registers[target]
            bits = np.where(guard, bits, old.view(bits.dtype) if old.dtype.itemsize == bits.dtype.itemsize else old)
        self.registers[target] = bits

    def _move(self, operands: list[str], suffixes: list[str], guard: Array | None) -> None:
        target, source = operands
        width = int(re.sub(r"\D", "", suffixes[-1]) or 32)
        if target.startswith("<"):
            parts = [p.strip() for p in target.strip("<>").split(",")]
            piece = width // len(parts)
            whole = self._read(source, f"b{width}")
            for position, part in enumerate(parts):
                shifted = whole >> whole.dtype.type(position * piece)
                self._assign(part, shifted.astype(f"u{piece // 8}"), guard)
        elif source.startswith("<"):
            parts = [p.strip() for p in source.strip("<>").split(",")]
            piece = width // len(parts)
            out: Any = 0
            for position, part in enumerate(parts):
                bits = self._read(part, f"b{piece}").astype(f"u{width // 8}")
                out = out | (bits << bits.dtype.type(position * piece))
            self._assign(target, np.asarray(out), guard)
        else:
            self._assign(target, self._read(source, suffixes[-1]), guard)

    def _raw(self, operand: str) -> Array:
        if operand in self.registers:
            return self.registers[operand]
        if operand == "%globaltimer":
            return np.array([time.time_ns()], np.uint64)
        if operand in _SPECIAL:
            return np.array([_SPECIAL[operand]], np.uint32)
        raise Unsupported(f"the inline asm operand {operand!r}")

    def _read(self, operand: str, kind: str) -> Array:
        """The operand's bits in the storage of ``kind``."""
        if kind not in TYPES:
            raise Unsupported(f"the inline asm type .{kind}")
        stored = numerics.storage(TYPES[kind])
        literal = _literal(operand, stored)
        if literal is not None:
            return literal
        negated = operand.startswith("!")
        bits = self._raw(operand.lstrip("!"))
        if stored == np.bool_:
            return ~bits.astype(np.bool_) if negated else bits.astype(np.bool_)
        if bits.dtype.itemsize != stored.itemsize:
            bits = bits.view(f"u{bits.dtype.itemsize}").astype(f"u{stored.itemsize}")
        return bits.view(stored)

    def _values(self, operand: str, kind: str) -> Array:
        return numerics.widen(self._read(operand, kind), TYPES[kind])

    def _compute(self, opcode: str, name: str, suffixes: list[str], operands: list[str]) -> list[Array]:
        types = [s for s in suffixes if s in TYPES or s in _PAIRS]
        if not types:
            raise Unsupported(f"the inline asm instruction {opcode!r}")
        if name == "cvt":
            return [self._convert(opcode, suffixes, types, operands)]
        kind = types[-1] if name not in ("set", "slct") else types[0]
        if kind in _PAIRS:
            return [self._pairwise(opcode, name, suffixes, kind, operands)]
        if name == "prmt":
            return [special.byte_perm(*(self._read(o, "b32") for o in operands[:3]))]
        if name == "selp":
            chosen = self._read(operands[2], "pred")
            return [np.where(chosen, self._read(operands[0], kind), self._read(operands[1], kind))]
        if name == "setp":
            holds = compare(suffixes[0], self._values(operands[0], kind), self._values(operands[1], kind), opcode)
            return [holds, ~holds]
        function = function_of(name, suffixes)
        if function is None:
            raise Unsupported(f"the inline asm instruction {opcode!r}")
        return [result_of(name, suffixes, kind, function(*(self._values(o, kind) for o in operands)))]

    def _pairwise(self, opcode: str, name: str, suffixes: list[str], kind: str, operands: list[str]) -> Array:
        """A packed instruction is the plain one on each half."""
        single = _PAIRS[kind]
        plain = [single if s == kind else s for s in suffixes]
        halves = []
        for shift in (0, 16):
            inner = Machine(
                {f"o{i}": (self._read(o, "b32") >> np.uint32(shift)).astype(np.uint16) for i, o in enumerate(operands)}
            )
            out = inner._compute(opcode, name, plain, [f"o{i}" for i in range(len(operands))])[0]
            halves.append(out.view(np.uint16).astype(np.uint32))
        return np.asarray(halves[0] | (halves[1] << np.uint32(16)))

    def _convert(self, opcode: str, suffixes: list[str], types: list[str], operands: list[str]) -> Array:
        target, source = types[0], types[-1]
        if target in _PAIRS:
            return self._convert_pair(target, source, operands)
        if source in _PAIRS:
            raise Unsupported(f"the inline asm instruction {opcode!r}")
        values = self._read(operands[0], source)
        integer_rounding = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}
        for suffix, function in integer_rounding.items():
            if suffix in suffixes:
                rounded = function(numerics.widen(values, TYPES[source]))
                return numerics.convert(rounded, _wide_name(TYPES[source]), TYPES[target])
        if "tf32" in types[:1]:
            return numerics.to_tf32(values)
        out = numerics.convert(values, TYPES[source], TYPES[target], toward_zero="rz" in suffixes)
        return np.clip(out, 0, 1) if "sat" in suffixes and out.dtype.kind == "f" else out

    def _convert_pair(self, target: str, source: str, operands: list[str]) -> Array:
        single = TYPES[_PAIRS[target]]
        width = 8 * numerics.storage(single).itemsize
        if source in _PAIRS:
            bits = self._read(operands[0], "b32" if _PAIRS[source] in ("f16", "bf16") else "b16")
            inner = TYPES[_PAIRS[source]]
            step = 8 * numerics.storage(inner).itemsize
            low, high = (
                (bits >> bits.dtype.type(shift)).astype(f"u{step // 8}").view(numerics.storage(inner))
                for shift in (0, step)
            )
        else:
            inner = TYPES[source]
            high, low = self._read(operands[0], source), self._read(operands[1], source)
        parts = [numerics.convert(part, inner, single).view(f"u{width // 8}").astype(np.uint32) for part in (low, high)]
        return (parts[0] | (parts[1] << np.uint32(width))).astype(f"u{2 * width // 8}")


def _outer_braces(text: str) -> str:
    """Scopes end statements like semicolons do; the braces of vectors become angles."""
    text = re.sub(r"\{(\s*[%$\w]+(?:\s*,\s*[%$\w]+)+\s*)\}", r"<\1>", text)
    return re.sub(r"[{}]", ";", text)


def _literal(operand: str, stored: np.dtype[Any]) -> Array | None:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand):
        return np.array([int(operand[2:], 16)], np.uint32).view(np.float32).astype(stored)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
        return np.array([int(operand[2:], 16)], np.uint64).view(np.float64).astype(stored)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
        number = int(operand.rstrip("U"), 0)
        if stored.kind == "f":
            return np.array([number]).astype(stored)
        return np.array([number & (1 << 64) - 1], np.uint64).astype(f"u{stored.itemsize}").view(stored)
    return np.array([float(operand)]).astype(stored) if re.fullmatch(r"-?\d+\.\d*", operand) else None


def _wide_name(name: str) -> str:
    return "fp32" if name in numerics.PACKED else name
