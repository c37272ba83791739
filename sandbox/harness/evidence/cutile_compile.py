"""Compiles one cuTile signature for a target in a child process and reads what the machine code takes."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.evidence import cubin, isolate, triton_compile
from tilecast.sandbox.harness.evidence.failures import explain

_REMARK = re.compile(r"--- !(\w+)\n(.*?)\n\.\.\.", re.S)
_FIELD = re.compile(r"^\s*-?\s*(Line|Remark|Instruction|Shape|Reason)\b:\s*'?(.*?)'?\s*$", re.M)
_LINE = re.compile(r"Line: (\d+)")
_MAX_REMARKS = 12


def compile_isolated(
    kernel: Any, signature: Any, budget: isolate.Budget, arch: str, hardware: dict[str, Any] | None
) -> dict[str, Any]:
    """As :func:`triton_compile.compile_isolated`, with the compiler's remarks."""
    started = time.perf_counter()
    answer = isolate.call(lambda: _in_child(kernel, signature, arch), budget)
    if "figures" in answer:
        outcome = triton_compile.judge(answer["figures"], arch, hardware)
        if outcome["status"] == "SPILLS":
            outcome["advice"] = (
                "the tile does not fit in registers: halve one side of the tile (cuTile sets the warps itself)"
            )
    else:
        outcome = explain(answer)
    outcome["compile_s"] = round(time.perf_counter() - started, 3)
    return outcome


def remember_compiler() -> None:
    """Ask the compiler once for its versions, so that processes forked from this one need not.

    Raises:
        ImportError: if cuTile is not installed.
    """
    from cuda.tile import _compile

    # Anything may be missing from these private names: then each compilation asks for itself.
    with contextlib.suppress(AttributeError, OSError):
        _compile._get_compiler_version_string()
        version = _compile._get_max_supported_bytecode_version(tempfile.gettempdir())
        _compile._get_max_supported_bytecode_version = lambda *_, **__: version


def prepare() -> None:
    """What every compilation needs and children would each find again: folders, and the bytecode version of the compiler."""
    from cuda.tile import _compile
    from cuda.tile._cext import default_tile_context

    config = default_tile_context.config
    config.temp_dir = tempfile.gettempdir()
    config.cache_dir = None
    with contextlib.suppress(AttributeError, OSError):
        _compile._get_max_supported_bytecode_version(config.temp_dir)


def _in_child(kernel: Any, signature: Any, arch: str) -> dict[str, Any]:
    from cuda.tile import _compile
    from cuda.tile.compilation import export_kernel

    out = io.BytesIO()
    remarks = Path(tempfile.gettempdir(), "remarks.yaml")
    with contextlib.suppress(AttributeError):
        real = _compile.compile_cubin

        def with_remarks(*args: Any, **kwargs: Any) -> Any:
            if _compile._tileiras_supports_remarks(tempfile.gettempdir()):
                kwargs["remarks_output_file"] = remarks
            return real(*args, **kwargs)

        _compile.compile_cubin = with_remarks
    try:
        export_kernel(kernel, [signature], out, gpu_code=arch, output_format="cubin")
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the answer
        return {"error": _describe(error)}
    figures = inspect(out.getvalue(), arch)
    if remarks.is_file():
        figures["remarks"] = read_remarks(remarks.read_text(errors="replace"))
    return {"figures": figures}


def _describe(error: Exception) -> dict[str, Any]:
    location = getattr(error, "loc", None)
    line = getattr(location, "line", None)
    name = type(error).__name__
    # The exceptions' public names carry a prefix that the classes lack.
    alias = {"CompilerExecutionError": "TileCompilerExecutionError", "CompilerTimeoutError": "TileCompilerTimeoutError"}
    message = str(getattr(error, "message", None) or error)
    return {"type": alias.get(name, name), "message": message[:4000], "line": line, "text": "", "source": None}


def inspect(image: bytes, arch: str) -> dict[str, Any]:
    """Figures of a cubin that holds one cuTile kernel."""
    use = max(cubin.kernels(image), key=lambda k: k.code_bytes)
    resources = triton_compile.nvidia_resources(image, use.name)
    warps = -(-use.threads // 32) if use.threads else 4
    resources |= {"warps": warps, "shared_bytes": triton_compile.own_shared_bytes(use.static_shared_bytes, arch)}
    return {"resources": resources, "instructions": triton_compile.disassemble(image)}


def read_remarks(text: str) -> list[str]:
    """The compiler's remarks as lines such as ``line 10: Load instruction selected (TMA Load instruction, [64, 128])``."""
    lines = []
    for kind, body in _REMARK.findall(text):
        fields = dict(_FIELD.findall(body))
        where = _LINE.search(body)
        extras = ", ".join(value for name in ("Instruction", "Shape", "Reason") if (value := fields.get(name)))
        mark = "" if kind == "Passed" else f"{kind.lower()}: "
        lines.append(
            f"line {where[1] if where else '?'}: {mark}{fields.get('Remark', '?')}" + (f" ({extras})" if extras else "")
        )
    return sorted(set(lines))[:_MAX_REMARKS]
