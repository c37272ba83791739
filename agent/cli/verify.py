"""`tilecast verify PROBLEM CANDIDATE...`: is it correct, and is it honest?"""

from __future__ import annotations

from tilecast.agent.cli.shared import (
    CandidatesArgument,
    DeviceOption,
    JsonOption,
    ProblemArgument,
    PureOption,
    RequireSandboxOption,
    TimeoutOption,
    tell_spaces,
)


def verify(
    problem: ProblemArgument,
    candidates: CandidatesArgument,
    device: DeviceOption = None,
    pure: PureOption = None,
    require_sandbox: RequireSandboxOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check candidates for correctness and integrity, in a sandbox, against a float64 truth.

    Without a GPU, Triton and cuTile kernels run in an interpreter on the problem's `small*` workloads.
    Exit code 1 if any candidate is rejected.

    Example: tilecast verify examples/softmax examples/softmax/kernel.py
    """
    from tilecast.agent.cli.verdicts import finish, show_verification
    from tilecast.agent.config import resolve
    from tilecast.agent.judging import options_of, read_inputs, verify_all

    settings = resolve({"device": device, "pure": pure, "require_sandbox": require_sandbox, "timeout_s": timeout})
    inputs = read_inputs(problem, candidates)
    tell_spaces(inputs.candidates)
    finish(inputs, lambda say: verify_all(inputs, settings, options_of(settings), say), show_verification, as_json)
