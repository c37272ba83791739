"""From the text after ``--device`` to a sandbox. What is named and cannot be used is an error; nothing is replaced silently."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilecast.agent.machine import Gpu, gpus
from tilecast.sandbox.base import Preflight, ProgressSink, Sandbox
from tilecast.sandbox.cluster.options import CPU, ClusterOptions
from tilecast.sandbox.cluster.options import GPU as CLUSTER_GPU
from tilecast.sandbox.errors import EnvironmentFailure, UsageError
from tilecast.sandbox.problem import Problem
from tilecast.sandbox.replay import PreflightProvider, ReplaySandbox

REPLAY = "replay:"
RAY = "ray"
BUNDLE = "bundle:"
FORMS = "auto, cuda[:N], cpu, replay:DIR, ray[:ADDRESS], bundle:DIR"


@dataclass(frozen=True)
class ChosenDevice:
    """A sandbox, the line that tells the user which, and the spec that names it again when a run is resumed."""

    sandbox: Sandbox
    line: str
    spec: str
    evaluators: str = ""
    """``cpu`` or ``replay:DIR`` where the spec does not say so: what the evaluators of a cluster are."""

    @property
    def on_cpu(self) -> bool:
        """Whether times are taken on CPUs."""
        return CPU in (self.spec, self.evaluators)

    @property
    def replayed(self) -> str | None:
        """The folder that recorded measurements come from, where they do."""
        named = next((text for text in (self.spec, self.evaluators) if text.startswith(REPLAY)), None)
        return None if named is None else named.removeprefix(REPLAY)


def make_sandbox(
    spec: str,
    problem: Problem,
    known: Preflight | None = None,
    require_sandbox: bool = False,
    cluster: ClusterOptions | None = None,
    lanes: int = 1,
) -> ChosenDevice:
    """The sandbox that ``--device`` names.

    Args:
        spec: one of :data:`FORMS`.
        problem: whose recorded measurements ``auto`` may use.
        known: the preflight of an earlier session of the run, so that it is not made again.
        require_sandbox: refuse to run candidates without full isolation.
        cluster: how evaluators of a Ray cluster are placed.
        lanes: judges on one CUDA GPU (see :mod:`tilecast.sandbox.lanes`).

    Raises:
        UsageError: for a form that is not known or not there yet, or a folder without a record.
        EnvironmentFailure: if a GPU is named and there is none.
    """
    if spec == "auto":
        return _auto(problem, known, require_sandbox, lanes)
    if spec.startswith(REPLAY):
        return _replay(spec, f"device: measurements recorded in {spec.removeprefix(REPLAY)}", problem, known)
    if spec.startswith(BUNDLE):
        return _bundle(spec, problem)
    if spec == CPU:
        return ChosenDevice(_local("cpu", None, require_sandbox), "device: this machine's CPU", "cpu")
    head, _, rest = spec.partition(":")
    if head == "cuda":
        return _cuda(spec, rest, require_sandbox, lanes)
    if head == RAY:
        return _ray(spec, problem, known, require_sandbox, cluster or ClusterOptions())
    raise UsageError(f"--device {spec!r} is not known; there are {FORMS}")


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The machine's GPUs in the order in which CUDA counts them: as ``CUDA_VISIBLE_DEVICES`` says, if it says anything.

    An entry that names no GPU ends the list, as it does for CUDA.
    """
    found, wanted = list(gpus()), environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return found
    visible = []
    for entry in (part.strip() for part in wanted.split(",")):
        named = [g for g in found if str(g.index) == entry or (entry.startswith("GPU-") and g.uuid.startswith(entry))]
        if not named:
            break
        visible.append(named[0])
    return visible


def _auto(problem: Problem, known: Preflight | None, require_sandbox: bool, lanes: int) -> ChosenDevice:
    found = visible_gpus()
    if found:
        chosen = _cuda("cuda:0", "0", require_sandbox, lanes)
        return ChosenDevice(chosen.sandbox, f"device: auto chose {found[0].name} (cuda:0)", chosen.spec)
    if problem.recorded is not None:
        line = f"device: auto found no CUDA GPU and takes the measurements recorded in {problem.recorded}"
        return _replay(f"{REPLAY}{problem.recorded}", line, problem, known)
    line = "device: auto found no CUDA GPU and no recorded measurements, and takes this machine's CPU"
    return ChosenDevice(_local("cpu", None, require_sandbox), line, "cpu")


def _cuda(spec: str, number: str, require_sandbox: bool, lanes: int = 1) -> ChosenDevice:
    if number and not number.isdecimal():
        raise UsageError(f"--device {spec}: the part after the colon is a GPU's number, such as cuda:0")
    index, found = int(number or 0), visible_gpus()
    if index >= len(found):
        there = ", ".join(f"cuda:{place} {gpu.name}" for place, gpu in enumerate(found)) or "none"
        raise EnvironmentFailure(
            f"--device {spec}: there is no such CUDA GPU on this machine (found: {there}); "
            "use --device cpu, or replay:DIR for recorded measurements"
        )
    line = f"device: {found[index].name} (cuda:{index})"
    if lanes > 1:
        from tilecast.sandbox.lanes import LanedSandbox

        sandbox: Sandbox = LanedSandbox(f"cuda:{index}", lanes, require_sandbox=require_sandbox)
        return ChosenDevice(sandbox, f"{line}; {lanes} judges verify, one at a time times", f"cuda:{index}")
    return ChosenDevice(_local("cuda", index, require_sandbox), line, f"cuda:{index}")


def _local(kind: str, index: int | None, require_sandbox: bool) -> Sandbox:
    from tilecast.sandbox.local import LocalSandbox

    return LocalSandbox(kind, index=index, require_sandbox=require_sandbox)


def _bundle(spec: str, problem: Problem) -> ChosenDevice:
    """``bundle:DIR``, or ``bundle:DIR#STREAM`` for work that was begun before."""
    from tilecast.sandbox.bundle import BundleSandbox

    place, _, stream = spec.removeprefix(BUNDLE).partition("#")
    if not place:
        raise UsageError(f"--device {spec}: name a folder that both hosts can have, such as bundle:work")
    if Path(place).exists() and not Path(place).is_dir():
        raise UsageError(f"--device {spec}: {place} is not a folder")
    if stream and not re.fullmatch(r"[A-Za-z0-9_]{1,64}", stream):
        raise UsageError(f"--device {spec}: the part after # is a name of letters, digits and _")
    folder, stream = Path(place).resolve(), stream or f"r{secrets.token_hex(4)}"
    sandbox = BundleSandbox(folder, stream, problem)
    line = f"device: bundles in {folder}; copied to or shared with the GPU's host, there: {sandbox.command}"
    return ChosenDevice(sandbox, line, f"{BUNDLE}{folder}#{stream}")


def _replay(spec: str, line: str, problem: Problem, known: Preflight | None) -> ChosenDevice:
    folder = spec.removeprefix(REPLAY)
    if not folder or not Path(folder).is_dir():
        raise UsageError(f"--device {spec}: {folder!r} is not a folder; give a corpus or a recorded problem")
    sandbox = ReplaySandbox(folder, _preflight_on_cpu(known))
    sandbox.record_of(problem)
    spec = f"{REPLAY}{Path(folder).resolve()}"
    device = sandbox.device
    return ChosenDevice(sandbox, f"{line} ({device.name}; every time shown is recorded, not measured here)", spec)


def _ray(
    spec: str, problem: Problem, known: Preflight | None, require_sandbox: bool, options: ClusterOptions
) -> ChosenDevice:
    from tilecast.sandbox.cluster.sandbox import RaySandbox

    recorded, folder = None, options.replay_folder
    if folder is not None:
        if not Path(folder).is_dir():
            raise UsageError(f"[ray] evaluators = {options.evaluators!r}: {folder!r} is not a folder")
        recorded = ReplaySandbox(folder, _preflight_on_cpu(known))
        recorded.record_of(problem)
        options = options.model_copy(update={"evaluators": f"{REPLAY}{Path(folder).resolve()}"})
    sandbox = RaySandbox(spec, options, require_sandbox=require_sandbox, recorded=recorded)
    address = spec.partition(":")[2]
    where = "a Ray cluster on this machine" if address in ("", "local") else f"the Ray cluster at {address}"
    what = {CLUSTER_GPU: "one evaluator a GPU", CPU: "evaluators on CPUs"}.get(options.evaluators)
    line = f"device: {where}; {what or f'measurements recorded in {options.replay_folder}, replayed there'}"
    return ChosenDevice(sandbox, line, spec, "" if options.evaluators == CLUSTER_GPU else options.evaluators)


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
