"""From the text after ``--device`` to a sandbox. What is named and cannot be used is an error; nothing is replaced silently.

Whether there is a CUDA GPU is asked of the driver's management library: importing torch for that would take seconds.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilecast.sandbox.base import Preflight, ProgressSink, Sandbox
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.replay import PreflightProvider, ReplaySandbox

REPLAY = "replay:"
FORMS = "auto, cuda[:N], cpu, replay:DIR"
NOT_YET = ("ray", "bundle")


@dataclass(frozen=True)
class Gpu:
    """A CUDA GPU as the driver lists it."""

    index: int
    name: str


@dataclass(frozen=True)
class ChosenDevice:
    """A sandbox, the line that tells the user which, and the spec that names it again when a run is resumed."""

    sandbox: Sandbox
    line: str
    spec: str


def make_sandbox(
    spec: str, problem: Problem, known: Preflight | None = None, require_sandbox: bool = False
) -> ChosenDevice:
    """The sandbox that ``--device`` names.

    Args:
        spec: one of :data:`FORMS`.
        problem: whose recorded measurements ``auto`` may use.
        known: the preflight of an earlier session of the run, so that it is not made again.
        require_sandbox: refuse to run candidates without full isolation.

    Raises:
        UsageError: for a form that is not known or not there yet, or a folder without a record.
        EnvironmentFailure: if a GPU is named and there is none.
    """
    if spec == "auto":
        return _auto(problem, known, require_sandbox)
    if spec.startswith(REPLAY):
        return _replay(spec, f"device: measurements recorded in {spec.removeprefix(REPLAY)}", problem, known)
    if spec == "cpu":
        return ChosenDevice(_local("cpu", None, require_sandbox), "device: this machine's CPU", "cpu")
    head, _, rest = spec.partition(":")
    if head == "cuda":
        return _cuda(spec, rest, require_sandbox)
    if head in NOT_YET:
        raise UsageError(f"--device {spec}: {head} is not part of this version yet; there are {FORMS}")
    raise UsageError(f"--device {spec!r} is not known; there are {FORMS}")


def gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """CUDA GPUs of this machine, by the driver's management library; none if ``CUDA_VISIBLE_DEVICES`` hides all."""
    if environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return []
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        return [Gpu(index, _gpu_name(nvml, index)) for index in range(count.value)]
    finally:
        nvml.nvmlShutdown()


def _gpu_name(nvml: ctypes.CDLL, index: int) -> str:
    handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    found = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
    if found and nvml.nvmlDeviceGetName(handle, text, len(text)) == 0:
        return text.value.decode("utf-8", "replace")
    return f"GPU {index}"


def _auto(problem: Problem, known: Preflight | None, require_sandbox: bool) -> ChosenDevice:
    found = gpus()
    if found:
        chosen = _cuda("cuda:0", "0", require_sandbox)
        return ChosenDevice(chosen.sandbox, f"device: auto chose {found[0].name} (cuda:0)", chosen.spec)
    if problem.recorded is not None:
        line = f"device: auto found no CUDA GPU and takes the measurements recorded in {problem.recorded}"
        return _replay(f"{REPLAY}{problem.recorded}", line, problem, known)
    line = "device: auto found no CUDA GPU and no recorded measurements, and takes this machine's CPU"
    return ChosenDevice(_local("cpu", None, require_sandbox), line, "cpu")


def _cuda(spec: str, number: str, require_sandbox: bool) -> ChosenDevice:
    if number and not number.isdecimal():
        raise UsageError(f"--device {spec}: the part after the colon is a GPU's number, such as cuda:0")
    index, found = int(number or 0), gpus()
    if index >= len(found):
        there = ", ".join(f"cuda:{gpu.index} {gpu.name}" for gpu in found) or "none"
        raise EnvironmentFailure(
            f"--device {spec}: there is no such CUDA GPU on this machine (found: {there}); "
            "use --device cpu, or replay:DIR for recorded measurements"
        )
    return ChosenDevice(
        _local("cuda", index, require_sandbox), f"device: {found[index].name} (cuda:{index})", f"cuda:{index}"
    )


def _local(kind: str, index: int | None, require_sandbox: bool) -> Sandbox:
    from tilecast.sandbox.local import LocalSandbox  # type: ignore[import-not-found,unused-ignore]

    sandbox: Sandbox = LocalSandbox(kind, index=index, require_sandbox=require_sandbox)
    return sandbox


def _replay(spec: str, line: str, problem: Problem, known: Preflight | None) -> ChosenDevice:
    folder = spec.removeprefix(REPLAY)
    if not folder or not Path(folder).is_dir():
        raise UsageError(f"--device {spec}: {folder!r} is not a folder; give a corpus or a recorded problem")
    sandbox = ReplaySandbox(folder, _preflight_on_cpu(known))
    sandbox.record_of(problem)
    spec = f"{REPLAY}{Path(folder).resolve()}"
    device = sandbox.device
    return ChosenDevice(sandbox, f"{line} ({device.name}; every time shown is recorded, not measured here)", spec)


def _preflight_on_cpu(known: Preflight | None) -> PreflightProvider:
    """The reference is looked at on this machine's CPU even where times are recorded; once a run is enough."""

    def provide(problem: Problem, progress: ProgressSink) -> Preflight:
        if known is not None:
            return known
        sandbox = _local("cpu", None, False)
        try:
            return sandbox.preflight(problem, progress)
        finally:
            sandbox.close()

    return provide
