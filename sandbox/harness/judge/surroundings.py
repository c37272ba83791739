"""What workers see of this machine and may use of it: environment, read-only paths, device nodes, limits."""

from __future__ import annotations

import glob
import os
import shutil
import sys

from tilecast.sandbox.harness.isolation import LOWER_TO, Enclosure, Limits

_KEPT_VARIABLES = (
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "TORCH_CUDA_ARCH_LIST",
    "TRITON_PTXAS_PATH",
    LOWER_TO,
)


def clean_environment(*, interpret: bool) -> dict[str, str]:
    """What a fork server may know of its surroundings: where programs and libraries are, nothing else."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    # Compilers that came with Python's packages (ninja) lie beside it.
    kept["PATH"] = os.path.dirname(sys.executable) + ":" + kept.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    kept.update(LANG="C.UTF-8", HOME="/tmp", PYTHONDONTWRITEBYTECODE="1", OMP_WAIT_POLICY="PASSIVE", USER="worker")
    kept.update(TORCHINDUCTOR_COMPILE_THREADS="1", PYTHONHASHSEED="0", TOKENIZERS_PARALLELISM="false")
    kept["OPENBLAS_NUM_THREADS"] = "1"  # numpy's starts its threads when it is loaded, and a fork server must have none
    if interpret:
        kept["TRITON_INTERPRET"] = "1"
    return kept


def harness_path() -> str:
    """The folder of this package's part that runs inside the sandbox; of the rest a worker sees nothing."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def python_paths() -> tuple[str, ...]:
    """Folders that Python and this package are loaded from; a worker sees these, read-only, and the system's."""
    library = [path for path in sys.path if path and os.path.isdir(path) and _is_library(path)]
    executable = os.path.dirname(os.path.realpath(sys.executable))
    wanted = [sys.prefix, sys.base_prefix, *library, executable, harness_path()]
    kept: list[str] = []
    for path in sorted({os.path.abspath(path) for path in wanted}, key=len):
        inside = any(path == other or path.startswith(other + "/") for other in (*kept, "/usr"))
        if not inside and path != "/":
            kept.append(path)
    return tuple(kept)


def _is_library(path: str) -> bool:
    """Whether packages were installed there: also by ``pip install --target``, into a folder of any name."""
    return "site-packages" in path or bool(glob.glob(f"{glob.escape(path)}/*.dist-info"))


def toolkit_paths() -> tuple[str, ...]:
    """Folders of CUDA's compilers and libraries, as the environment names them, beside those of the system."""
    compiler = shutil.which("tileiras")
    beside = [os.path.dirname(os.path.dirname(os.path.realpath(compiler)))] if compiler else []
    named = [os.environ.get("CUDA_HOME", ""), *os.environ.get("LD_LIBRARY_PATH", "").split(":"), *beside]
    absolute = [os.path.abspath(path) for path in named if path and os.path.isdir(path)]
    return tuple(dict.fromkeys(path for path in absolute if path not in ("/", "/usr") and not path.startswith("/usr/")))


def enclosure_for(device_type: str, cache: str | None = None, *, loopback: bool = False) -> Enclosure:
    """What workers for a device see."""
    paths = (*python_paths(), *toolkit_paths())
    if device_type != "cuda":
        return Enclosure(readonly=paths, cache=cache, loopback=loopback)
    devices = sorted({*glob.glob("/dev/nvidia*"), *glob.glob("/dev/dri/*"), *glob.glob("/dev/dxg")})
    # In /opt/nvidia lie the profilers, of which a toolkit's bin often holds a script only that starts them.
    readonly = (*paths, "/sys", "/etc/nvidia", "/etc/nvidia-container-runtime", "/opt/nvidia")
    return Enclosure(readonly=readonly, devices=tuple(devices), cache=cache, cuda=True, loopback=loopback)


def limits_for(device_type: str, shared_bytes: int = 0) -> Limits:
    """Default limits of a worker on a device; ``shared_bytes`` of the judge's memory come on top on the CPU."""
    if device_type != "cuda":
        return Limits(memory_bytes=(4 << 30) + 2 * shared_bytes)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(memory_bytes=max(16 << 30, physical // 2), processes=1024, file_bytes=4 << 30, open_files=4096)
