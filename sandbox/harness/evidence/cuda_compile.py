"""Compiles CUDA C++ text to a cubin with nvcc, aside, and reads what each kernel takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.evidence import cubin, isolate, triton_compile
from tilecast.sandbox.harness.evidence.failures import explain

_ERROR = re.compile(r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:fatal )?error:? (?P<message>.*)$", re.M)
_PTXAS = re.compile(r"^ptxas (?:error|fatal)\s*:.*$", re.M)
_MANGLED = re.compile(r"^_Z(?:N[^0-9]*)?(\d+)")
_INTEGERS = re.compile(r"L[a-z](n?\d+)E")
_TOO_MUCH = re.compile(r"too much|exceeds|out of", re.I)
SOURCE_NAME = "kernel.cu"


def find_nvcc() -> str | None:
    """Path of nvcc: on PATH, under CUDA_HOME, or in the NVIDIA wheels."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    wheel = Path(sysconfig.get_paths()["purelib"], "nvidia", "cu13", "bin")
    return shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin") or shutil.which("nvcc", path=str(wheel))


def compile_isolated(source: str, flags: list[str], budget: isolate.Budget, arch: str) -> dict[str, Any]:
    """``{"kernels": {name: resources and instructions}}``, or the fields of a failure (status, reason, advice)."""
    nvcc = find_nvcc()
    if nvcc is None:
        return _failure("UNAVAILABLE", "no nvcc on this machine: CUDA C++ is compiled where it is verified")
    if not arch.startswith("sm_"):
        return _failure("UNAVAILABLE", f"CUDA C++ does not compile for {arch}")
    started = time.perf_counter()
    answer = isolate.call(lambda: _in_child(nvcc, source, flags, arch), budget)
    outcome = answer if "kernels" in answer else answer.get("failure") or explain(answer)
    return outcome | {"compile_s": round(time.perf_counter() - started, 3)}


def _failure(status: str, reason: str, advice: str = "") -> dict[str, Any]:
    return {"status": status, "reason": reason, "advice": advice}


def _in_child(nvcc: str, source: str, flags: list[str], arch: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        text, out = Path(folder, SOURCE_NAME), Path(folder, "kernel.cubin")
        text.write_text(source, encoding="utf-8")
        command = [nvcc, "-cubin", f"-arch={arch}", "-lineinfo", "-w", *flags, str(text), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return {"failure": read_errors(done.stderr + done.stdout, done.returncode)}
        image = out.read_bytes()
    uses = cubin.kernels(image)
    short = [short_name(use.name) for use in uses]
    names = [full_name(use.name) if short.count(name) > 1 else name for use, name in zip(uses, short, strict=True)]
    return {"kernels": {name: _figures(image, use, arch) for name, use in zip(names, uses, strict=True)}}


def _figures(image: bytes, use: cubin.KernelUse, arch: str) -> dict[str, Any]:
    shared = triton_compile.own_shared_bytes(use.static_shared_bytes, arch)
    resources = triton_compile.nvidia_resources(image, use.name) | {"shared_bytes": shared}
    return {"resources": resources, "instructions": triton_compile.disassemble(image, use.name)}


def short_name(symbol: str) -> str:
    """The function's own name out of a mangled symbol (template arguments and types are dropped)."""
    found = _MANGLED.match(symbol)
    return symbol[found.end() : found.end() + int(found[1])] if found else symbol


def full_name(symbol: str) -> str:
    """The same with its integer template arguments, to tell instances of one template apart: ``rows<4>``."""
    arguments = _INTEGERS.findall(symbol.partition("EEv")[0] + "E")
    return short_name(symbol) + (f"<{', '.join(arguments)}>" if arguments else "")


def read_errors(text: str, code: int) -> dict[str, Any]:
    """Status, reason and advice from what nvcc printed."""
    if found := _ERROR.search(text):
        own = found["file"].endswith(SOURCE_NAME)
        place = f"CUDA source line {found['line']}" if own else f"{Path(found['file']).name}:{found['line']}"
        return _failure("COMPILE_ERROR", f"{place}: {found['message'][:300]}", "correct that line of the CUDA source")
    if found := _PTXAS.search(text):
        status = "OUT_OF_RESOURCES" if _TOO_MUCH.search(found[0]) else "COMPILE_ERROR"
        return _failure(status, found[0][:300], "use less static shared memory or fewer registers a thread")
    if code < 0 or code >= 128 or "signal" in text.lower():
        return explain({"died": code if code < 0 else 128 - code, "log": text})
    return _failure(
        "COMPILE_ERROR", " ".join(text.split())[:300] or f"nvcc exited with {code}", "see the compiler's message"
    )
