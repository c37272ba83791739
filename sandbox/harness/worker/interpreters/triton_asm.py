"""``tl.inline_asm_elementwise``: operands into registers, the text through the PTX evaluator, registers into tensors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
from triton.runtime import interpreter as _interpreter

from . import numerics
from .errors import Unsupported
from .ptx import Machine

Array = npt.NDArray[Any]
TensorHandle = _interpreter.TensorHandle


class _Results:
    """What the builder returns for an op with results."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def get_result(self, index: int) -> Any:
        return self._handles[index]


def _registers_of(values: Array, pack: int) -> list[Array]:
    """Registers that one operand fills: ``pack`` elements an invocation, small ones several to a 32-bit register."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype == np.bool_:
        flat = flat.view(np.uint8)
    size = flat.dtype.itemsize
    together = min(pack, max(1, 4 // size))
    unsigned = flat.view(f"u{size}")
    if together == 1:
        return [unsigned[i::pack] for i in range(pack)]
    words = []
    for first in range(0, pack, together):
        word: Array = np.zeros(flat.size // pack, np.uint32)
        for lane in range(together):
            word = word | (unsigned[first + lane :: pack].astype(np.uint32) << np.uint32(8 * size * lane))
        words.append(word)
    return words


def _count(dtype: np.dtype[Any], pack: int) -> int:
    """Registers that a result of this type fills."""
    return -(-pack // min(pack, max(1, 4 // dtype.itemsize)))


def _values_of(registers: list[Array], dtype: np.dtype[Any], shape: tuple[int, ...], pack: int) -> Array:
    size, invocations = dtype.itemsize, int(np.prod(shape, dtype=np.int64)) // pack
    out = np.empty(invocations * pack, dtype=f"u{size}")
    together = min(pack, max(1, 4 // size))
    for position in range(pack):
        register = registers[position // together]
        bits = (
            register.view(f"u{register.dtype.itemsize}") if register.dtype != np.bool_ else register.astype(np.uint32)
        )
        shift = 8 * size * (position % together)
        out[position::pack] = np.broadcast_to((bits >> bits.dtype.type(shift)).astype(f"u{size}"), invocations)
    return out.view(dtype).reshape(shape)


def create_inline_asm(self: Any, asm: str, constraints: str, values: list[Any], types: Any, *rest: Any) -> _Results:
    """Evaluate the assembly on whole tensors; ``rest`` is whether it is pure, and elements an invocation.

    Raises:
        Unsupported: naming the instruction that the evaluator does not know.
    """
    pack = int(rest[1])
    result_types = types if isinstance(types, list | tuple) else [types]
    shapes = [v.data.shape for v in values] + [tuple(getattr(t, "shape", ()) or ()) for t in result_types]
    shape = np.broadcast_shapes(*shapes) if shapes else (1,)
    shape = shape or (1,)
    pack = pack if int(np.prod(shape)) % pack == 0 else 1
    stored = [numerics.storage(t.scalar.name) for t in result_types]
    names = constraints.replace(" ", "").split(",")
    outputs = sum(1 for name in names if name.startswith("="))
    if outputs != sum(_count(d, pack) for d in stored):
        raise Unsupported(f"inline asm whose constraints {constraints!r} do not fit its results")
    registers: dict[str, Array] = {}
    number = outputs
    for operand in values:
        for register in _registers_of(np.broadcast_to(operand.data, shape), pack):
            registers[f"${number}"] = register
            number += 1
    tied = [name for name in names[outputs:] if name.isdigit()]
    if tied:
        raise Unsupported(f"inline asm with tied operands ({constraints!r})")
    machine = Machine(registers)
    machine.run(re.sub(r"\$\{(\d+)(:\w+)?\}", r"$\1", asm).replace("$$", ""))
    handles, first = [], 0
    for dtype, kind in zip(stored, result_types, strict=True):
        count = _count(dtype, pack)
        found = [machine.registers.get(f"${first + i}") for i in range(count)]
        if any(register is None for register in found):
            found = [np.zeros(1, np.uint32) if r is None else r for r in found]
        handles.append(TensorHandle(_values_of([r for r in found if r is not None], dtype, shape, pack), kind.scalar))
        first += count
    return _Results(handles)
