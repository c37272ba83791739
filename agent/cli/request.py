"""From flags, configuration and (for a resumed run) the record to one request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tilecast.agent.config import home, resolve
from tilecast.agent.record.store import Record, RunLog, sqlite_url
from tilecast.agent.request import DEFAULT_EVALS, OptimizeRequest, limits_of
from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.source import Candidate, check_parses, load_candidate, space_notes

OF_THE_RUN = ("model", "forecaster", "target", "language", "strategy", "in_flight")
"""Settings that a resumed run takes from its record unless a flag says otherwise."""


def build_request(
    problem: str | None,
    kernel: Path | None,
    run_dir: Path | None,
    resume: str | None,
    flags: dict[str, Any],
    more: dict[str, Any],
) -> tuple[OptimizeRequest, list[str]]:
    """The request, and lines that tell the user what was chosen for them.

    Raises:
        UsageError: for a missing problem, or whatever in configuration and files cannot be used.
    """
    if resume is not None:
        return _resumed(problem, kernel, resume, flags, more)
    if problem is None:
        raise UsageError("name a PROBLEM (a file, or a folder with reference.py), or a run with --resume RUN")
    loaded = load_problem(problem)
    notes = []
    settings = resolve(flags)
    limits = limits_of(settings.budget)
    if not limits.any:
        settings = resolve({**flags, "max_evals": DEFAULT_EVALS})
        limits = limits_of(settings.budget)
        notes.append(f"budget: no limit was given; {DEFAULT_EVALS} evaluations (--max-evals)")
    start = _start(loaded, kernel)
    notes += [f"note: {note}" for note in (space_notes(start) if start is not None else [])]
    request = OptimizeRequest(
        problem=loaded,
        start=start,
        settings=settings,
        home=home(),
        options=EvaluationOptions(
            timeout_s=settings.timeout_s, pure=settings.pure, require_sandbox=settings.require_sandbox
        ),
        limits=limits,
        target_speedup=more["target_speedup"],
        patience=more["patience"],
        seed=more["seed"] or 0,
        run_dir=run_dir,
        confirm=more.get("confirm", True),
    )
    return request, notes


def _resumed(
    problem: str | None, kernel: Path | None, resume: str, flags: dict[str, Any], more: dict[str, Any]
) -> tuple[OptimizeRequest, list[str]]:
    """As the run began, with what the flags change; limits may be raised, the problem and the device may not differ."""
    record = Record(resolve().database_url or sqlite_url(home()))
    try:
        log = record.open(record.find(resume), time.monotonic)
        start = _recorded_start(log) if kernel is None else load_candidate(kernel)
    finally:
        record.close()
    kept, limits_then = log.header.settings, log.state.limits or log.header.settings["limits"]
    budget = {f"max_{meter}": limit for meter, limit in limits_then.items() if limit is not None}
    for whole in ("max_evals", "max_tokens"):
        if whole in budget:
            budget[whole] = int(budget[whole])
    base = {name: kept[name] for name in OF_THE_RUN} | budget | {"device": log.header.device_spec}
    given = {name: value for name, value in flags.items() if value is not None}
    settings = resolve({**base, **given})
    options = EvaluationOptions.model_validate(kept["options"])
    changed: dict[str, Any] = {key: given[key] for key in ("timeout_s", "pure", "require_sandbox") if key in given}
    request = OptimizeRequest(
        problem=load_problem(problem or log.header.problem_path),
        start=start,
        settings=settings,
        home=home(),
        options=options.model_copy(update=changed),
        limits=limits_of(settings.budget),
        target_speedup=more["target_speedup"] or kept["target_speedup"],
        patience=more["patience"] or kept["patience"],
        confirm=more.get("confirm", True),
        seed=log.header.seed if more["seed"] is None else more["seed"],
    )
    return request, []


def _start(problem: Problem, kernel: Path | None) -> Candidate | None:
    path = kernel or problem.kernel
    if path is None:
        return None
    start = load_candidate(path)
    check_parses(start.source, path, "the kernel")
    return start


def _recorded_start(log: RunLog) -> Candidate | None:
    sha256 = log.header.start_sha256
    return None if sha256 is None else Candidate(name="kernel", source=log.record.text(sha256))
