"""WORKLOADS, TOLERANCE and DOMAIN of a problem: read once, and refused with the value where they make no sense."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.tensors import BadSpec, decode_tree
from tilecast.sandbox.harness.wire import Message

Workload = dict[str, Any]
FULL = "full"
DOMAINS = ("open", "declared")


@dataclass(frozen=True)
class Extras:
    """``workloads`` with ``full`` (no arguments) last; ``tolerance`` None is the default of each dtype."""

    workloads: dict[str, Workload]
    tolerance: float | None
    domain: str


def read_extras(tree: object, problem: Message) -> Extras:
    """What the file defines, and ``problem.toml``, which wins over it.

    Raises:
        ProblemRefused: INVALID_REFERENCE, naming the constant, its value and what it may be.
    """
    try:
        values = decode_tree(tree, [])
    except BadSpec as error:
        made_of = "WORKLOADS, TOLERANCE and DOMAIN are made of numbers, texts, lists, and dicts whose keys are texts"
        raise ProblemRefused("INVALID_REFERENCE", f"{error}; {made_of}") from None
    given = {name: problem.get(name.lower()) for name in ("WORKLOADS", "TOLERANCE", "DOMAIN")}
    values = {**values, **{name: value for name, value in given.items() if value is not None}}
    return Extras(
        _workloads(values.get("WORKLOADS")), _tolerance(values.get("TOLERANCE")), _domain(values.get("DOMAIN"))
    )


def _workloads(given: object) -> dict[str, Workload]:
    if given is None:
        return {FULL: {}}
    if not isinstance(given, dict) or not all(isinstance(v, dict) for v in given.values()):
        raise _refused("WORKLOADS", given, "a dict of dicts of keyword arguments")
    return {**given, FULL: given.get(FULL, {})}


def _tolerance(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
        raise _refused(
            "TOLERANCE", given, "one number of 0 (exact) or more, the cap on the relative L2 error of each output"
        )
    return float(given)


def _domain(given: object) -> str:
    if given is None:
        return DOMAINS[0]
    if not isinstance(given, str) or given not in DOMAINS:
        raise _refused("DOMAIN", given, " or ".join(map(repr, DOMAINS)))
    return given


def _refused(name: str, value: object, allowed: str) -> ProblemRefused:
    return ProblemRefused("INVALID_REFERENCE", f"{name} must be {allowed}, not {value!r:.80}")
