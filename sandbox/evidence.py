"""Compile-time evidence for a candidate, a workload and a target GPU that need not be here.

``EvidenceCollector.collect(problem, candidate, target, workload) -> Evidence``. The format is
:class:`~tilecast.sandbox.evidence_schema.Evidence`; ``Evidence.model_dump(mode="json")`` is the ``evidence`` dict that
forecasters and ``tilecast forecast --evidence`` see. In short::

    {"status": "OK", "reason": "", "advice": [...], "target": "sm_90", "languages": ["triton"], "launch_count": 1,
     "launches": [{"kernel", "language", "status", "count", "grid": [x, y, z], "programs", "waves",
                   "resources": {"registers", "spills", "stack_bytes", "shared_bytes", "warps", "stages", ...},
                   "occupancy": {"blocks_per_sm", "fraction", "limiter", ...},
                   "instructions": {"total", "tensor_core", "global_load_bits", "async_copy", "bulk_copy", ...},
                   "tuned": [...], "chosen", "constants", "signature", "argument_bytes"}],
     "host": {"count", "bytes_moved", "library_calls", ...},
     "work": {"compulsory_bytes", "moved_bytes", "intermediate_bytes", "extra_passes", "flops", "roofline_ms", "bound"}}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from queue import LifoQueue
from typing import Any

from pydantic import ValidationError

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.evidence_runner import EvidenceRunner, ServerRunner
from tilecast.sandbox.evidence_schema import (
    EVIDENCE_VERSION,
    Evidence,
    EvidenceStatus,
    HostOps,
    InstructionMix,
    LaunchEvidence,
    Occupancy,
    Resources,
    TunedVariant,
    Work,
)
from tilecast.sandbox.hardware import Hardware, catalogue, named_hardware, nearest_gpu
from tilecast.sandbox.installed import versions_of
from tilecast.sandbox.problem import Problem, TensorFacts, WorkloadFacts
from tilecast.sandbox.roofline import floor_of
from tilecast.sandbox.schema import Document
from tilecast.sandbox.source import Candidate

__all__ = [
    "Evidence",
    "EvidenceCollector",
    "EvidenceStatus",
    "HostOps",
    "InstructionMix",
    "LaunchEvidence",
    "Occupancy",
    "Resources",
    "Target",
    "TunedVariant",
    "Work",
    "resolve_target",
]

PROCESSES = 2
_DECIDING_PACKAGES = ("torch", "triton", "cuda-tile", "nvidia-cuda-tileiras")
_ARCH = re.compile(r"sm_\d{2,3}|gfx[0-9a-f]{3,5}")
# Depends on how busy the machine was, or on what is not installed: asked again the next time.
_NOT_KEPT = frozenset({EvidenceStatus.NOT_COMPILED, EvidenceStatus.UNAVAILABLE})


class Target(Document):
    """What to compile for, and the figures of the GPU if it is in the catalogue."""

    arch: str
    hardware: Hardware | None


def resolve_target(name: str) -> Target:
    """A target by GPU (``h200``, ``NVIDIA H200``) or compiler name (``sm_90``, ``gfx942``; figures of the first GPU known with it).

    Raises:
        UsageError: for a name that is neither, naming what is known.
    """
    hardware = named_hardware(name)
    if hardware is not None:
        return Target(arch=hardware.arch, hardware=hardware)
    if _ARCH.fullmatch(name):
        return Target(arch=name, hardware=next((h for h in catalogue().values() if h.arch == name), None))
    raise UsageError(
        f"unknown target {name!r}: known are {', '.join(catalogue())}, sm_80, sm_90, sm_100, sm_120, gfx942"
        f"{nearest_gpu(name)}"
    )


@lru_cache(maxsize=1)
def tool_versions() -> dict[str, str]:
    """Versions of the installed packages that decide the figures, and a digest of the code that reads them."""
    found = versions_of(_DECIDING_PACKAGES)
    digest = hashlib.sha256()
    for file in sorted((Path(__file__).parent / "harness" / "evidence").glob("*.py")):
        digest.update(file.read_bytes())
    return found | {"evidence": f"{EVIDENCE_VERSION}-{digest.hexdigest()[:12]}"}


class EvidenceCollector:
    """Collects evidence, each at most once: answers are kept on disk by the content of all that decides them.

    ``cache_dir`` None keeps nothing. Calls may come from several threads; up to ``PROCESSES`` jobs run at once.
    """

    def __init__(
        self,
        cache_dir: Path | None,
        *,
        timeout_s: float = 90.0,
        compile_timeout_s: float = 30.0,
        require_sandbox: bool = False,
        runners: Sequence[EvidenceRunner] | None = None,
    ) -> None:
        self._cache = cache_dir
        self._limits = {"timeout_s": timeout_s, "compile_timeout_s": compile_timeout_s}
        self._runners = (
            list(runners)
            if runners is not None
            else [ServerRunner(require_sandbox=require_sandbox) for _ in range(PROCESSES)]
        )
        self._idle: LifoQueue[EvidenceRunner] = LifoQueue()
        # Last in, first out: a single caller keeps to one warm process.
        for runner in self._runners:
            self._idle.put(runner)
        self._lock = threading.Lock()

    def __enter__(self) -> EvidenceCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that this collector started."""
        for runner in self._runners:
            runner.close()

    def collect(self, problem: Problem, candidate: Candidate, target: str | Target, workload: str = "full") -> Evidence:
        """Evidence for one candidate; never raises for what a candidate does.

        Raises:
            UsageError: for an unknown target.
            EnvironmentFailure: if jobs cannot be run on this machine.
        """
        aim = resolve_target(target) if isinstance(target, str) else target
        key = self._key(problem, candidate, aim, workload)
        kept = self._read(key, candidate)
        if kept is not None:
            return kept
        args = {
            "problem": problem.payload(),
            "candidate": {"name": candidate.name, "source": candidate.source, "sha256": candidate.sha256},
            "workload": workload,
            "targets": [aim.arch],
            "hardware": {aim.arch: aim.hardware.model_dump()} if aim.hardware else {},
            **self._limits,
        }
        runner = self._take()
        try:
            answer = runner.run(args)
        finally:
            self._idle.put(runner)
        evidence = _evidence(answer, problem, candidate, aim, workload)
        if evidence.status not in _NOT_KEPT:
            self._write(key, evidence)
        return evidence

    def collect_many(
        self, problem: Problem, candidates: Sequence[Candidate], target: str | Target, workload: str = "full"
    ) -> list[Evidence]:
        """As :meth:`collect` for several candidates, ``PROCESSES`` at a time, in their order."""
        with ThreadPoolExecutor(max_workers=max(1, len(self._runners))) as pool:
            return list(pool.map(lambda candidate: self.collect(problem, candidate, target, workload), candidates))

    def _take(self) -> EvidenceRunner:
        return self._idle.get()

    def _key(self, problem: Problem, candidate: Candidate, aim: Target, workload: str) -> str:
        parts = [problem.payload(), candidate.source, workload, aim.model_dump(), tool_versions()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def _file(self, key: str) -> Path | None:
        return None if self._cache is None else self._cache / key[:2] / f"{key}.json"

    def _read(self, key: str, candidate: Candidate) -> Evidence | None:
        file = self._file(key)
        if file is None:
            return None
        try:
            kept = Evidence.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            return None
        return kept.model_copy(update={"cached": True, "candidate": candidate.name})

    def _write(self, key: str, evidence: Evidence) -> None:
        file = self._file(key)
        if file is None:
            return
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as temporary:
                temporary.write(evidence.model_dump_json().encode())
            os.replace(temporary.name, file)
        except OSError:
            # A cache that cannot be written costs the next one its time, and nobody their answer.
            return


def _evidence(answer: dict[str, Any], problem: Problem, candidate: Candidate, aim: Target, workload: str) -> Evidence:
    about = {
        "candidate": candidate.name,
        "source_sha256": candidate.sha256,
        "problem": problem.name,
        "problem_sha256": problem.sha256,
        "workload": workload,
        "target": aim.arch,
        "hardware": aim.hardware.key if aim.hardware else None,
    }
    try:
        found = dict(answer["targets"][aim.arch])
        if found.get("work"):
            found["work"] = _with_roofline(dict(found["work"]), aim.hardware)
        told = {name: answer[name] for name in ("versions", "seconds", "cpu_s") if name in answer}
        return Evidence.model_validate(found | told | about)
    except (LookupError, TypeError, ValueError) as error:
        # The candidate ran in that process: what it made of the answer is its own doing.
        why = answer.get("failed") or f"no usable answer: {error}"
        return Evidence.model_validate(_lost(str(why)) | about)


def _lost(why: str) -> dict[str, Any]:
    """What to say of a job that ended without an answer: the candidate's own host code did that."""
    return {
        "status": EvidenceStatus.HOST_ERROR,
        "reason": "the process that ran forward died or did not return in time, although nothing was run on a GPU: "
        + " ".join(why.split())[:300],
        "advice": ["host code loops, waits for values that kernels write, or touches memory behind tensors: do not"],
    }


def _with_roofline(work: dict[str, Any], hardware: Hardware | None) -> dict[str, Any]:
    dtypes = work.pop("input_dtypes", [])
    if hardware is None:
        return work
    inputs = [TensorFacts(name="", shape=[], dtype=dtype) for dtype in dtypes]
    facts = WorkloadFacts(name="", inputs=inputs, outputs=[], min_bytes=work["compulsory_bytes"], flops=work["flops"])
    floor = floor_of(facts, hardware)
    return work | {"roofline_ms": round(floor.ms, 6), "bound": floor.bound}
