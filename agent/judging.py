"""`verify`, `bench` and `lint` for one problem and some candidates: the same sandbox that `optimize` uses, without a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tilecast.agent.config import Settings
from tilecast.agent.devices import make_sandbox
from tilecast.agent.report import wording
from tilecast.sandbox.base import DeviceFacts, EvaluationOptions, Preflight, ProgressSink, Sandbox
from tilecast.sandbox.errors import InvalidReference, ProblemError, UsageError
from tilecast.sandbox.languages import LANGUAGES, languages_in
from tilecast.sandbox.problem import Problem, load_problem
from tilecast.sandbox.schema import EvaluationStatus, Measurement, Verification
from tilecast.sandbox.source import Candidate, load_candidate

BASELINES = ("auto", "eager", "compile", "max-autotune")
"""Names of baselines; anything else is a file."""

INTERPRETED = "are checked in an interpreter and cannot be timed"
OF_GPUS = {"triton": INTERPRETED, "cutile": INTERPRETED, "cuda": "can be neither run nor timed"}
"""Languages whose kernels have no time on a CPU, and what becomes of them there."""

Result = TypeVar("Result", bound=Verification)


@dataclass(frozen=True)
class Inputs:
    """A problem and the candidate files to judge, read and checked before anything is started."""

    problem: Problem
    candidates: list[Candidate]


def read_inputs(problem: str, candidates: Sequence[str]) -> Inputs:
    """Read the files.

    Raises:
        ProblemError, CandidateError: naming the file and what is wrong with it.
    """
    return Inputs(load_problem(problem), [load_candidate(path) for path in candidates])


def options_of(settings: Settings, baseline: str | None = None, **more: Any) -> EvaluationOptions:
    """Evaluation options from the resolved configuration; ``baseline`` is a name or a candidate file's path."""
    values: dict[str, Any] = {key: value for key, value in more.items() if value is not None}
    if baseline is not None:
        values["baseline"] = baseline
        if baseline not in BASELINES:
            values["baseline_source"] = load_candidate(baseline).source
    return EvaluationOptions(
        timeout_s=settings.timeout_s, pure=settings.pure, require_sandbox=settings.require_sandbox, **values
    )


@contextmanager
def opened(settings: Settings, problem: Problem, say: ProgressSink) -> Iterator[Sandbox]:
    """The sandbox of the configured device; closed, with every process of its own, whatever happens."""
    chosen = make_sandbox(settings.device, problem, require_sandbox=settings.require_sandbox, cluster=settings.cluster)
    say(chosen.line)
    try:
        yield chosen.sandbox
    finally:
        chosen.sandbox.close()


def verify_all(
    inputs: Inputs, settings: Settings, options: EvaluationOptions, say: ProgressSink
) -> Iterator[Verification]:
    """Verifications, one a candidate, as they are done.

    Raises:
        ProblemError: if the reference does not pass its own preflight.
    """
    with opened(settings, inputs.problem, say) as sandbox:
        check_reference(sandbox, inputs.problem, say)
        for candidate in inputs.candidates:
            say(f"verifying {candidate.name}")
            yield _named(sandbox.verify(inputs.problem, candidate, options, say), candidate)


def benchmark_all(
    inputs: Inputs, settings: Settings, options: EvaluationOptions, say: ProgressSink
) -> Iterator[Measurement]:
    """Measurements, one a candidate, as they are done; each is verified first.

    Where none can be timed, which is said first, no baseline is: each candidate is verified, and what passes is not timed.

    Raises:
        ProblemError: if the reference does not pass its own preflight.
        UsageError: for a workload that the problem does not have.
    """
    with opened(settings, inputs.problem, say) as sandbox:
        answer = check_reference(sandbox, inputs.problem, say)
        _check_workload(options.workload, answer)
        untimed = untimed_here(inputs, sandbox.device)
        for line in untimed:
            say(line)
        timed = len(untimed) < len(inputs.candidates)
        if timed and options.baseline_source is None and options.baseline == "auto":
            times = sandbox.baselines(inputs.problem, options, say)
            options = options.model_copy(update={"baseline": times.fastest})
            told = ", ".join(f"{name} {ms:.4g} ms" for name, ms in times.times_ms.items())
            say(f"baselines: {told}{wording.baselines_mark(times)}; comparing with {times.fastest}")
        for candidate in inputs.candidates:
            say(f"measuring {candidate.name}")
            yield _named(sandbox.benchmark(inputs.problem, candidate, options, say), candidate)


def untimed_here(inputs: Inputs, device: DeviceFacts) -> list[str]:
    """On a CPU a line for each candidate in a language of GPUs: why it has no time there, and what to do. Else nothing."""
    lines = []
    for candidate in inputs.candidates if device.kind == "cpu" else []:
        spoken = [name for name in languages_in(candidate.source) if name in OF_GPUS]
        if spoken:
            record = inputs.problem.recorded or "DIR"
            lines.append(
                f"{candidate.name} is in {LANGUAGES[spoken[0]].title}: on a CPU its kernels {OF_GPUS[spoken[0]]}. Times need a GPU "
                f"(--device cuda) or recorded measurements (--device replay:{record}); tilecast verify needs neither"
            )
    return lines


def lint(problem: Problem, settings: Settings, say: ProgressSink) -> dict[str, Any]:
    """Which wrong kernels the checker would let pass on this problem.

    Raises:
        ProblemError: if the reference does not pass its own preflight.
    """
    with opened(settings, problem, say) as sandbox:
        check_reference(sandbox, problem, say)
        return sandbox.lint(problem, say)


def _check_workload(name: str, answer: Preflight) -> None:
    """Whether the problem has the workload to time.

    Raises:
        UsageError: naming those that there are.
    """
    known = [item.name for item in answer.facts.workloads] if answer.facts is not None else [name]
    if name not in known:
        raise UsageError(f"--workload {name}: the problem has no such workload; there are {', '.join(known)}")


def check_reference(sandbox: Sandbox, problem: Problem, say: ProgressSink) -> Preflight:
    """Preflight.

    Raises:
        ProblemError: INVALID_REFERENCE, or a reference too large for this machine, with the reason.
    """
    say("checking the reference")
    answer = sandbox.preflight(problem, say)
    if answer.status is EvaluationStatus.INVALID_REFERENCE:
        raise InvalidReference(f"{problem.path}: {answer.status}: {answer.reason}")
    if answer.status is not EvaluationStatus.PASSED:
        raise ProblemError(f"{problem.path}: {answer.status}: {answer.reason}")
    return answer


def _named(result: Result, candidate: Candidate) -> Result:
    return result.model_copy(update={"candidate": candidate.name})
