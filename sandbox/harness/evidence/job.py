"""Evidence for one candidate on several targets, in a process that serves nothing else.

``run`` is called in a sandboxed worker, forked from a process that imported torch and Triton. It executes the problem's and
the candidate's text; nothing reaches a GPU. All answers are plain JSON.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tilecast.sandbox.harness.evidence.forward import Setting, collect
from tilecast.sandbox.harness.evidence.isolate import Budget

_RESERVE_S = 0.5
_COMPILE_LIMIT_S = 30.0


def prewarm() -> None:
    """Import and initialise what every job needs. For a parent process before it forks; touches no driver."""
    import importlib

    for name in ("torch._subclasses.fake_tensor", "torch.utils.flop_counter", "triton.compiler", "triton.testing"):
        importlib.import_module(name)
    from tilecast.sandbox.harness.evidence import warming

    warming.warm()


def run(args: dict[str, Any]) -> dict[str, Any]:
    """Evidence by target.

    Args:
        args: ``problem`` (payload), ``candidate`` (``name``, ``source``), ``workload``, ``targets`` (compiler targets),
            ``hardware`` (figures by target, where known), ``timeout_s`` for everything together, and optionally
            ``compile_timeout_s`` processor seconds for one kernel.

    Returns:
        ``{"targets": {target: fields of Evidence}, "versions": {...}, "seconds": float, "cpu_s": float}``.
    """
    started, cpu_before_s = time.monotonic(), _cpu_s()
    folder = Path(tempfile.mkdtemp(prefix="evidence-"))
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    setting = Setting(
        problem=args["problem"],
        candidate=args["candidate"],
        workload=args.get("workload") or "full",
        targets=list(args["targets"]),
        hardware=dict(args.get("hardware") or {}),
        folder=folder,
        budget=Budget(
            cpu_s=float(args.get("compile_timeout_s") or _COMPILE_LIMIT_S),
            deadline=started + float(args.get("timeout_s") or 60.0) - _RESERVE_S,
        ),
    )
    try:
        answer = collect(setting)
    finally:
        _remove(folder)
    answer["seconds"] = round(time.monotonic() - started, 3)
    answer["cpu_s"] = round(_cpu_s() - cpu_before_s, 3)
    return answer


def _cpu_s() -> float:
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
