"""What a result means: whether it answers what was asked, and the value or exception that it stands for."""

from __future__ import annotations

from pydantic import ValidationError

from tilecast.sandbox.base import BaselineTimes, EvaluationOptions, Preflight
from tilecast.sandbox.bundle_box import Result
from tilecast.sandbox.errors import EnvironmentFailure, InvalidReference
from tilecast.sandbox.schema import Document, Measurement, Verification

_KINDS: dict[str, type[Document]] = {
    "preflight": Preflight,
    "baselines": BaselineTimes,
    "verify": Verification,
    "bench": Measurement,
}


def check_answer(op: str, source_sha256: str | None, body: Result) -> str | None:
    """What is wrong with a result that is sealed as it should be; None if it answers what was asked."""
    try:
        if not body["ok"]:
            return None if body["error"]["kind"] in ("problem", "environment") else "its error is of no known kind"
        if op == "lint":
            return None if isinstance(body["result"], dict) else "it is no object"
        found = _KINDS[op].model_validate(body["result"])
    except (ValidationError, KeyError, TypeError) as error:
        return f"it is no answer to {op}: {str(error).splitlines()[0]}"
    if isinstance(found, Verification) and found.source_sha256 != source_sha256:
        return f"it is about candidate {found.source_sha256[:12]}, not {str(source_sha256)[:12]}"
    return None


def outcome(body: Result) -> Result:
    """The value of a result.

    Raises:
        InvalidReference: if the problem was refused.
        EnvironmentFailure: if the worker's machine failed at it.
    """
    if body["ok"]:
        return dict(body["result"])
    message = f"{body.get('host')}: {body['error'].get('message')}"
    if body["error"]["kind"] == "problem":
        raise InvalidReference(message)
    raise EnvironmentFailure(message)


def other_baseline(found: Measurement, options: EvaluationOptions) -> bool:
    """Whether a candidate was timed against another baseline than the one that the run has settled on."""
    named = options.baseline != "auto" and options.baseline_source is None
    return named and found.speedup is not None and found.baseline != options.baseline
