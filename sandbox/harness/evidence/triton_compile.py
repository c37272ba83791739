"""Compiles one Triton specialisation in a child process and reads what the machine code takes."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.evidence import amdgcn, cubin, isolate, occupancy, sass
from tilecast.sandbox.harness.evidence.failures import explain
from tilecast.sandbox.harness.evidence.loading import line_in_candidate

_SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_LOCAL_WORD_BYTES = 4
_THREADS_PER_BLOCK = 1024
_DISASSEMBLY_LIMIT_S = 20.0


def tools() -> Path:
    """Folder of the NVIDIA tools inside the triton package."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def compile_isolated(
    compile_kernel: Callable[[], Any], budget: isolate.Budget, arch: str, hardware: dict[str, Any] | None
) -> dict[str, Any]:
    """Status, reason, advice, resources, occupancy and instructions of one specialisation.

    ``compile_kernel`` returns Triton's ``CompiledKernel``; it runs in a child process within the budget.
    """
    started = time.perf_counter()
    answer = isolate.call(lambda: _in_child(compile_kernel), budget)
    outcome = explain(answer) if "figures" not in answer else judge(answer["figures"], arch, hardware)
    outcome["compile_s"] = round(time.perf_counter() - started, 3)
    return outcome


def _in_child(compile_kernel: Callable[[], Any]) -> dict[str, Any]:
    import triton

    with contextlib.suppress(AttributeError):
        # ptxas runs with -v anyway; this makes its log readable, which names the bytes spilled.
        triton.knobs.nvidia.dump_ptxas_log = True
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            kernel = compile_kernel()
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the answer
        return {"error": describe(error), "printed": printed.getvalue()[-4000:]}
    return {"figures": inspect(kernel, printed.getvalue())}


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as plain values: innermost type, message, and the line within the kernel if it carries one."""
    while error.__cause__ is not None and type(error).__name__ == "CompilationError":
        if type(error.__cause__).__name__ != "CompilationError":
            break
        error = error.__cause__
    node = getattr(error, "node", None)
    message = str(getattr(error, "error_message", None) or error.__cause__ or error)
    source = getattr(error, "src", None)
    line = getattr(node, "lineno", None)
    text = ""
    if isinstance(source, str) and isinstance(line, int) and 0 < line <= len(source.splitlines()):
        text = source.splitlines()[line - 1].strip()
        line = line_in_candidate(source, line)
    return {"type": type(error).__name__, "message": message[:4000], "line": line, "text": text, "source": source}


def inspect(kernel: Any, ptxas_log: str) -> dict[str, Any]:
    """Figures of a ``CompiledKernel``: resources as the driver would report them after loading."""
    metadata = kernel.metadata
    resources: dict[str, Any] = {
        "warps": metadata.num_warps,
        "stages": getattr(metadata, "num_stages", None),
        "ctas": getattr(metadata, "num_ctas", None),
        "shared_bytes": metadata.shared,
    }
    if "amdgcn" in kernel.asm:
        text = kernel.asm["amdgcn"]
        return {"resources": resources | amdgcn.resources(text), "instructions": amdgcn.instruction_mix(text)}
    image = kernel.asm["cubin"]
    resources |= nvidia_resources(image, metadata.name)
    if spilled := _SPILL.search(ptxas_log):
        resources |= {"spill_store_bytes": int(spilled[1]), "spill_load_bytes": int(spilled[2])}
    return {"resources": resources, "instructions": disassemble(image)}


def nvidia_resources(image: bytes, name: str) -> dict[str, Any]:
    """Registers, stack, spills and code size of the kernel named, or of the largest one."""
    found = cubin.kernels(image)
    use = next((k for k in found if k.name == name), None) or max(found, key=lambda k: k.code_bytes)
    return {
        "registers": use.registers,
        "stack_bytes": use.stack_bytes,
        # Triton's n_spills is CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES / 4 (backends/nvidia/driver.c).
        "spills": use.stack_bytes // _LOCAL_WORD_BYTES,
        "code_bytes": use.code_bytes,
    }


def own_shared_bytes(static_bytes: int, arch: str) -> int:
    """Static shared memory of a kernel's own: from sm_90 on the section also holds the system's KiB."""
    reserved = 1024 if arch.removeprefix("sm_").isdigit() and int(arch.removeprefix("sm_")) >= 90 else 0
    return max(0, static_bytes - reserved)


def disassemble(image: bytes, function: str | None = None) -> dict[str, Any] | None:
    """Instruction mix of a cubin, or of one function of it; None if the disassembler does not know it."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        # Without data-flow analysis (-ndf) it is a third faster, and nothing here needs it.
        command = [str(tools() / "nvdisasm"), "-ndf", "-c", file.name]
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DISASSEMBLY_LIMIT_S, check=False)
            if done.returncode == 0:
                return sass.instruction_mix(sass.part(done.stdout, function) if function else done.stdout)
    return None


def judge(figures: dict[str, Any], arch: str, hardware: dict[str, Any] | None) -> dict[str, Any]:
    """Whether what was compiled fits on the target, with occupancy, and advice where it does not."""
    use = figures["resources"]
    result: dict[str, Any] = {"status": "OK", "reason": "", "advice": "", **figures}
    result["occupancy"] = _occupancy(use, arch, hardware)
    limit = _shared_limit(arch, hardware)
    threads = (use["warps"] or 1) * (64 if arch.startswith("gfx") else 32)
    if use["shared_bytes"] is not None and limit is not None and use["shared_bytes"] > limit:
        result["status"] = "OUT_OF_RESOURCES"
        result["reason"] = f"shared memory: needs {use['shared_bytes']} bytes a block, {arch} has {limit}"
        factor = use["shared_bytes"] / limit
        result["advice"] = f"use fewer num_stages or smaller blocks: shared memory must shrink {factor:.2f} times"
    elif threads > _THREADS_PER_BLOCK or (result["occupancy"] or {}).get("blocks_per_sm") == 0:
        result["status"] = "OUT_OF_RESOURCES"
        result["reason"] = f"a block of {threads} threads with {use['registers']} registers each does not fit on {arch}"
        result["advice"] = "use fewer num_warps, or smaller blocks so that a thread holds fewer values"
    elif use["spills"]:
        result["status"] = "SPILLS"
        result["reason"] = f"{use['spills']} words of local memory a thread at {use['registers']} registers"
        result["advice"] = "values do not fit in registers: smaller block sizes, or more num_warps for the same block"
    return result


def _occupancy(use: dict[str, Any], arch: str, hardware: dict[str, Any] | None) -> dict[str, Any] | None:
    if arch.startswith("gfx"):
        registers = (use["registers"] or 0) + (use.get("accumulator_registers") or 0)
        return occupancy.amd(registers, use["shared_bytes"] or 0, use["warps"] or 1)
    if not hardware:
        return None
    return occupancy.nvidia(use["registers"], use["shared_bytes"] or 0, use["warps"] or 1, hardware)


_SHARED_LIMITS = {
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_120": 101376,
}
"""Bytes a block may opt in to (CUDA C++ Programming Guide, technical specifications by compute capability)."""


def _shared_limit(arch: str, hardware: dict[str, Any] | None) -> int | None:
    if hardware and hardware.get("shared_per_block_bytes"):
        return int(hardware["shared_per_block_bytes"])
    return 65536 if arch.startswith("gfx9") else _SHARED_LIMITS.get(arch)
