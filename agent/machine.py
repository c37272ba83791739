"""What this machine has, found without importing torch: GPUs, compilers, versions. For `doctor` and for choosing a device."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from tilecast.sandbox.installed import versions_of
from tilecast.sandbox.schema import Document

PACKAGES = (
    "torch",
    "triton",
    "cuda-tile",
    "numpy",
    "langgraph",
    "openai",
    "pydantic",
    "scikit-learn",
    "lightgbm",
    "ray",
)
QUERY = "index,name,uuid,driver_version,memory.total,compute_cap"
QUERY_TIMEOUT_S = 15.0


class Gpu(Document):
    """One NVIDIA GPU as its driver names it; memory in MiB."""

    index: int
    name: str
    uuid: str
    driver: str
    memory_mib: int
    compute_capability: str


@lru_cache(maxsize=1)
def gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs that the driver lists; empty where there is none (or its tool does not answer)."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    command = [tool, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = []
    for line in run.stdout.splitlines() if run.returncode == 0 else []:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == len(QUERY.split(",")) and fields[0].isdigit():
            memory = int(fields[4]) if fields[4].isdigit() else 0
            found.append(
                Gpu(
                    index=int(fields[0]),
                    name=fields[1],
                    uuid=fields[2],
                    driver=fields[3],
                    memory_mib=memory,
                    compute_capability=fields[5],
                )
            )
    return tuple(found)


def package_versions() -> dict[str, str]:
    """Versions of the packages that matter, by distribution name; what is not installed is left out."""
    return versions_of(PACKAGES)


def triton_tools() -> list[str]:
    """Names of the CUDA tools that come inside the Triton package (assembler, disassembler)."""
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    return sorted(tool.name for tool in folder.iterdir() if tool.is_file()) if folder.is_dir() else []


def compilers() -> dict[str, str]:
    """Paths of the compilers and tools found."""
    names = ("g++", "c++", "nvcc", "ninja", "ncu", "compute-sanitizer")
    return {name: path for name in names if (path := shutil.which(name))}


def cpu_name() -> str:
    """The CPU's model, as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def keys(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Which keys and servers are configured; a key's value is never shown."""
    found = {}
    if environ.get("OPENAI_API_KEY"):
        found["OPENAI_API_KEY"] = "set"
    if environ.get("OPENAI_BASE_URL"):
        found["OPENAI_BASE_URL"] = environ["OPENAI_BASE_URL"]
    return found
