"""Runs the candidate's ``forward`` with nothing behind it, and turns what was captured into evidence."""

from __future__ import annotations

import ast
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from tilecast.sandbox.harness.evidence import cutile_capture, extension_capture, isolate
from tilecast.sandbox.harness.evidence.advice import advise
from tilecast.sandbox.harness.evidence.cuda_face import CudaFace
from tilecast.sandbox.harness.evidence.launches import LaunchLog, worst
from tilecast.sandbox.harness.evidence.loading import CANDIDATE_MODULE, REFERENCE_MODULE, call_with, load_text, where
from tilecast.sandbox.harness.evidence.recording import OpRecorder, tensor_bytes
from tilecast.sandbox.harness.evidence.triton_capture import TritonCapture
from tilecast.sandbox.harness.evidence.virtual import VirtualDevice, forget_storages

_SECOND_CALL_LIMIT_S = 2.0


@dataclass(frozen=True)
class Setting:
    """What one job is about."""

    problem: dict[str, Any]
    candidate: dict[str, Any]
    workload: str
    targets: list[str]
    hardware: dict[str, dict[str, Any]]
    folder: Path
    budget: isolate.Budget
    """Of each compilation; its deadline is the whole job's."""


@dataclass
class Pass:
    """One attempt at running ``forward`` for a target."""

    log: LaunchLog
    host: dict[str, Any]
    intermediate_bytes: int = 0
    error: str = ""
    missing: str = ""
    notes: tuple[str, ...] = ()


def collect(setting: Setting) -> dict[str, Any]:
    """Evidence for every target of the setting (see :func:`job.run`)."""
    torch.set_num_threads(1)
    try:
        tree = ast.parse(setting.candidate["source"])
    except (SyntaxError, ValueError) as error:
        return _answer(setting, dict.fromkeys(setting.targets, _syntax(error)), {})
    face = CudaFace()
    face.show(setting.targets[0], setting.hardware.get(setting.targets[0]))
    face.install()
    runner = _Runner(setting, face, _imports(tree))
    work, note = runner.reference_work()
    results = {
        target: _evidence(runner.candidate_pass(target), target, setting, work, note) for target in setting.targets
    }
    return _answer(setting, results, runner.versions())


def _answer(setting: Setting, results: dict[str, dict[str, Any]], versions: dict[str, str]) -> dict[str, Any]:
    return {"targets": results, "versions": versions}


def _syntax(error: SyntaxError | ValueError) -> dict[str, Any]:
    line = getattr(error, "lineno", None)
    text = (getattr(error, "text", None) or "").strip()
    reason = f"line {line}: {getattr(error, 'msg', error)}" + (f": `{text}`" if text else "")
    return {"status": "SYNTAX_ERROR", "reason": reason, "advice": ["the file is not Python: correct that line first"]}


def _imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


class _Runner:
    def __init__(self, setting: Setting, face: CudaFace, imports: set[str]) -> None:
        self._setting, self._face = setting, face
        self._triton = TritonCapture(setting.budget)
        self._triton.install()
        self._tile: cutile_capture.CuTileCapture | None = None
        self._tile_missing = ""
        if any(name.split(".")[:2] == ["cuda", "tile"] for name in imports):
            self._tile_missing = cutile_capture.available()
            if not self._tile_missing:
                self._tile = cutile_capture.CuTileCapture(self._triton.log, setting.budget)
                self._tile.install()
        self._extensions = extension_capture.ExtensionCapture(self._triton.log, setting.budget)
        self._extensions.install(imports)
        self._arguments = dict((setting.problem.get("workloads") or {}).get(setting.workload, {}))

    def versions(self) -> dict[str, str]:
        """Versions of what decides the figures."""
        import triton

        found = {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
        if self._tile is not None:
            import cuda.tile

            found["cuda_tile"] = str(getattr(cuda.tile, "__version__", "?"))
        return found

    def reference_work(self) -> tuple[dict[str, Any] | None, str]:
        """Compulsory bytes and operations of the reference on the workload; None with the reason if it cannot be run."""
        failure = ""
        for base in ("meta", "cpu"):
            recorder = OpRecorder(skip_heavy=base == "cpu")
            try:
                with torch.no_grad(), VirtualDevice(base, recorder.attention), recorder:
                    module = load_text(self._setting.problem["source"], REFERENCE_MODULE, self._setting.folder)
                    self._read_workload(module)
                    model = module.Model(*call_with(module.get_init_inputs, self._arguments))
                    inputs = call_with(module.get_inputs, self._arguments)
                    recorder.active = True
                    outputs = model(*inputs)
                    recorder.active = False
                    self._remember_outputs(outputs)
                    held = [*tree_iter(inputs), *model.parameters(), *model.buffers(), *tree_iter(outputs)]
                    least = {id(t): tensor_bytes(t) for t in held if isinstance(t, torch.Tensor)}
                    types = sorted(
                        {str(t.dtype).removeprefix("torch.") for t in tree_iter(inputs) if isinstance(t, torch.Tensor)}
                    )
                    return {"compulsory_bytes": sum(least.values()), "flops": recorder.flops, "input_dtypes": types}, ""
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                failure = where(error, REFERENCE_MODULE)
        return None, f"the reference could not be run without a device: {failure}"

    def _remember_outputs(self, outputs: Any) -> None:
        shapes = [(t.shape, t.dtype) for t in tree_iter(outputs) if isinstance(t, torch.Tensor)]

        def alike() -> Any:
            made = [torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in shapes]
            return made[0] if len(made) == 1 else tuple(made)

        self._extensions.outputs = alike

    def _read_workload(self, module: Any) -> None:
        known = self._setting.problem.get("workloads") or getattr(module, "WORKLOADS", None) or {}
        if self._setting.workload != "full" and self._setting.workload not in known:
            raise KeyError(f"no workload {self._setting.workload!r}: there are full, {', '.join(known)}")
        self._arguments = dict(known.get(self._setting.workload, {}))

    def candidate_pass(self, target: str) -> Pass:
        """Run the candidate for a target; with tensors that hold values if it does not run without."""
        if self._tile_missing:
            return Pass(LaunchLog(), {}, missing=self._tile_missing)
        figures = self._setting.hardware.get(target)
        self._face.show(target, figures)
        for capture in (self._triton, self._tile, self._extensions):
            if capture is not None:
                capture.aim(target, figures)
        first = self._attempt("meta")
        if not first.error or first.missing or self._setting.budget.spent:
            return first
        second = self._attempt("cpu")
        if second.error and len(second.log.launches) < len(first.log.launches):
            second.log = first.log
        second.notes = (f"host code needs values ({first.error}): run with tensors that hold some",)
        return second

    def _fresh_log(self) -> LaunchLog:
        log = LaunchLog()
        self._triton.log = log
        for capture in (self._tile, self._extensions):
            if capture is not None:
                capture.log = log
        return log

    def _attempt(self, base: str) -> Pass:
        recorder = OpRecorder(skip_heavy=base == "cpu")
        for capture in (self._triton, self._tile):
            if capture is not None:
                capture.watch = recorder.watch
        result = Pass(self._fresh_log(), {})
        self._face.compiled = False
        try:
            with torch.no_grad(), VirtualDevice(base, recorder.attention), recorder:
                module = load_text(self._setting.candidate["source"], CANDIDATE_MODULE, self._setting.folder)
                reference = load_text(self._setting.problem["source"], REFERENCE_MODULE, self._setting.folder)
                model = module.ModelNew(*call_with(reference.get_init_inputs, self._arguments))
                started = time.monotonic() - isolate.waited_s()
                first = result = self._forward(model, reference, recorder)
                if not first.error and time.monotonic() - isolate.waited_s() - started < _SECOND_CALL_LIMIT_S:
                    result = _steady(first, self._forward(model, reference, recorder))
        except ModuleNotFoundError as error:
            result.error = result.missing = f"{where(error, CANDIDATE_MODULE)}; this package is not installed here"
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            result.error = where(error, CANDIDATE_MODULE)
        finally:
            forget_storages()
        result.host["compiled"] = self._face.compiled
        return result

    def _forward(self, model: Any, reference: Any, recorder: OpRecorder) -> Pass:
        log = self._fresh_log()
        inputs = call_with(reference.get_inputs, self._arguments)
        recorder.reset()
        recorder.active = True
        error, outputs = "", []
        try:
            outputs = [t for t in tree_iter(model(*inputs)) if isinstance(t, torch.Tensor)]
        except Exception as failure:  # noqa: BLE001 - user code may raise anything
            error = where(failure, CANDIDATE_MODULE)
        recorder.active = False
        return Pass(log, recorder.document(), recorder.intermediates_bytes(outputs), error)


def _steady(first: Pass, second: Pass) -> Pass:
    """The second call, which no longer prepares; the first if the second fails or does nothing at all."""
    if second.error or (not second.log.launches and not second.host["count"]):
        if first.log.launches or first.host["count"]:
            first.notes = ("the second call does no work: results are kept between calls",) if not second.error else ()
        return first
    spared = len(first.log.launches) + first.host["count"] - len(second.log.launches) - second.host["count"]
    if spared > 0:
        second.notes = (
            f"the first call also makes {spared} launches or torch operations that later ones do not repeat",
        )
    return second


def _evidence(done: Pass, target: str, setting: Setting, work: dict[str, Any] | None, note: str) -> dict[str, Any]:
    hardware = setting.hardware.get(target)
    launches = [launch.document(hardware) for launch in done.log.launches]
    statuses = [launch["status"] for launch in launches]
    reasons = {launch["status"]: launch["reason"] for launch in reversed(launches)}
    if done.missing:
        statuses, reasons["UNAVAILABLE"] = [*statuses, "UNAVAILABLE"], done.missing
    elif done.error:
        statuses, reasons["HOST_ERROR"] = [*statuses, "HOST_ERROR"], done.error
    status = worst(statuses)
    host = {"count": 0, "bytes_moved": 0, **done.host}
    moved = host["bytes_moved"] + sum(launch["argument_bytes"] * launch["count"] for launch in launches)
    full = None
    if work:
        least = work["compulsory_bytes"]
        extra = max(0.0, (moved - least) / least) if least else 0.0
        full = work | {
            "moved_bytes": moved,
            "intermediate_bytes": done.intermediate_bytes,
            "extra_passes": round(extra, 4),
        }
    notes = [*done.notes, *([note] if note else [])]
    if host.get("compiled"):
        notes.append("torch.compile is used: its operations are counted as if nothing were fused")
    advice = advise(launches, full, host, target)
    if status == "HOST_ERROR":
        advice.insert(0, "forward fails before its kernels are all launched: fix the host code at that line")
    return {
        "status": status,
        "reason": reasons.get(status, ""),
        "advice": advice,
        "launches": launches,
        "launch_count": sum(launch["count"] for launch in launches),
        "host": host,
        "work": full,
        "notes": notes,
        "languages": sorted({launch["language"] for launch in launches} or {"torch"}),
    }
