"""Resources and instruction counts from the AMD assembly text that Triton keeps."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_FIELDS = {
    "registers": "vgpr_count",
    "scalar_registers": "sgpr_count",
    "accumulator_registers": "agpr_count",
    "spills": "vgpr_spill_count",
    "stack_bytes": "private_segment_fixed_size",
}
_OPCODE = re.compile(r"^\s+([sv]_\w+|ds_\w+|global_\w+|buffer_\w+|flat_\w+|scratch_\w+)", re.M)
_BITS = {
    "dwordx4": 128,
    "dwordx3": 96,
    "dwordx2": 64,
    "dword": 32,
    "short": 16,
    "ushort": 16,
    "ubyte": 8,
    "sbyte": 8,
    "byte": 8,
}


def resources(text: str) -> dict[str, Any]:
    """Registers and spills from the kernel descriptor at the end of the text; ``vgpr_count`` counts accumulators too."""
    found = {}
    for name, key in _FIELDS.items():
        value = re.search(rf"\.{key}:\s*(\d+)", text)
        found[name] = int(value[1]) if value else None
    if found["registers"] is not None and found["accumulator_registers"]:
        found["registers"] -= found["accumulator_registers"]
    return found


def _bits(opcode: str) -> str:
    suffix = next((part for part in reversed(opcode.split("_")) if part in _BITS), "dword")
    return str(_BITS[suffix])


def instruction_mix(text: str) -> dict[str, Any]:
    """The fields of :class:`InstructionMix` that have a counterpart on AMD."""
    codes = Counter(_OPCODE.findall(text))

    def count(*prefixes: str) -> int:
        return sum(n for code, n in codes.items() if code.startswith(prefixes))

    loads: Counter[str] = Counter()
    stores: Counter[str] = Counter()
    for code, n in codes.items():
        if code.startswith(("global_load", "buffer_load", "flat_load")):
            loads[_bits(code)] += n
        elif code.startswith(("global_store", "buffer_store", "flat_store")):
            stores[_bits(code)] += n
    kinds = {code: n for code, n in codes.most_common() if code.startswith(("v_mfma", "v_wmma", "v_smfmac"))}
    return {
        "total": sum(codes.values()),
        "tensor_core": sum(kinds.values()),
        "tensor_core_kinds": kinds,
        "global_load_bits": dict(loads),
        "global_store_bits": dict(stores),
        "shared_load": count("ds_read", "ds_load"),
        "shared_store": count("ds_write", "ds_store"),
        "barriers": count("s_barrier"),
        "special_function": count("v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos"),
        "local_load": count("scratch_load"),
        "local_store": count("scratch_store"),
        "atomics": count("global_atomic", "buffer_atomic", "flat_atomic"),
        "fma": count("v_fma", "v_fmac", "v_mul_f", "v_add_f", "v_pk_fma", "v_pk_mul_f", "v_pk_add_f", "v_sub_f"),
        "integer": count("v_add_u", "v_lshl", "v_and", "v_or", "v_mad_u", "v_mul_lo", "v_lshr", "v_sub_u", "v_cmp_"),
        "convert": count("v_cvt"),
        "branches": count("s_cbranch", "s_branch"),
        "opcodes": dict(codes.most_common(60)),
    }
