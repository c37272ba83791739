"""What is known of a GPU from its data sheet, for rooflines, prompts and plausibility checks."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.hints import did_you_mean
from tilecast.sandbox.schema import Document

_MAKER = re.compile(r"^nvidia[ _-]+")
_BOARD = re.compile(r"([ _-]+(sxm\d?|pcie|nvl|hbm\d?e?|\d+ ?gb))+$")


class Hardware(Document):
    """Peaks of one GPU model. Bandwidth in GB/s (10^9 bytes), arithmetic in TFLOP/s (dense), sizes in bytes."""

    key: str
    match: list[str]
    compute_capability: str
    sms: int
    bandwidth_gbs: float
    measured_bandwidth_gbs: float | None = None
    fp32_tflops: float
    tf32_tflops: float
    fp16_tflops: float
    fp8_tflops: float
    fp64_tflops: float
    l2_bytes: int
    shared_per_sm_bytes: int
    shared_per_block_bytes: int
    registers_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    memory_bytes: int
    launch_us: float

    @property
    def arch(self) -> str:
        """Compiler target, for instance ``sm_90``."""
        return "sm_" + self.compute_capability.replace(".", "")

    def matrix_tflops(self, dtype: str) -> float:
        """Peak of matrix products whose inputs have this dtype (``float32`` counts TF32 out)."""
        short = dtype.removeprefix("torch.")
        table = {"float64": self.fp64_tflops, "float32": self.fp32_tflops, "tfloat32": self.tf32_tflops}
        if short in ("float16", "bfloat16"):
            return self.fp16_tflops
        return self.fp8_tflops if short.startswith(("float8", "int8", "uint8")) else table.get(short, self.fp32_tflops)


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Hardware]:
    """All known GPUs by key."""
    text = files("tilecast.sandbox").joinpath("hardware.toml").read_text(encoding="utf-8")
    return {key: Hardware(key=key, **values) for key, values in tomllib.loads(text).items()}


def find_hardware(device: str) -> Hardware | None:
    """The GPU one of whose marks occurs in the name that a device or a record gives itself (``NVIDIA H200 NVL``), or None.

    What somebody typed is no such name: see :func:`named_hardware`.
    """
    wanted = device.lower()
    for item in catalogue().values():
        if wanted == item.key or any(mark.lower() in wanted for mark in item.match):
            return item
    return None


def named_hardware(name: str) -> Hardware | None:
    """The GPU that somebody names: its key in any case, alone or as its driver writes it (``NVIDIA A100-SXM4-80GB``); else None."""
    return catalogue().get(_plain(name))


def require_hardware(name: str) -> Hardware:
    """As :func:`named_hardware`.

    Raises:
        UsageError: for an unknown GPU, naming the known ones.
    """
    found = named_hardware(name)
    if found is None:
        raise UsageError(f"unknown GPU {name!r}: known are {', '.join(catalogue())}{nearest_gpu(name)}")
    return found


def require_device(device: str) -> Hardware:
    """As :func:`find_hardware`.

    Raises:
        UsageError: for a device that is not in the catalogue, naming what is.
    """
    found = find_hardware(device)
    if found is None:
        raise UsageError(f"unknown GPU {device!r}: known are {', '.join(catalogue())}")
    return found


def nearest_gpu(name: str) -> str:
    """``; did you mean H200?`` where a known GPU is called nearly so, else nothing."""
    return did_you_mean(_plain(name), [key.upper() for key in catalogue()])


def _plain(name: str) -> str:
    """A name without its maker and without form and memory of the board, in small letters."""
    return _BOARD.sub("", _MAKER.sub("", name.strip().lower()))
