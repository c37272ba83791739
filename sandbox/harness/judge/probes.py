"""The call schedule: which inputs a worker sees, in which buffers, after which changes, with which poison. Pure
plans; the judge's flow executes them.

A plan is a list of :class:`Step`. The flow makes the inputs of a step *before* the call, from its own generator, so
that contents never repeat;
it snapshots the outputs at return and compares them again :attr:`Step.hold` steps later. Correctness calls and calls
in a burst are the same calls.

``poison_bytes`` says what to write over free memory and over output buffers before a call: alternating patterns, each
a NaN in every
floating type, so that whoever reads what it did not write gives NaN, or two different answers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Content = Literal["fresh", "elements", "operand", "row", "rows", "nan", "inf"]
Buffer = Literal["new", "refill", "reuse-freed"]

POISON_BYTES = (0xFF, 0x7F)
"""Repeated, 0xFF is a NaN of float64, 32, 16, bfloat16 and both float8 types; 0x7F one of all but float64 and float32
(there 3.4e38, 1.4e306).
"""

_OF_AN_OPERAND: tuple[Content, ...] = ("elements", "operand")
_WITH_BURSTS = 30
"""A plan of fewer steps has no bursts of its own (a workload gets one apart): nothing else would be left of it."""
LEAST_CALLS, USUAL_CALLS = 12, 72
"""72 calls miss a defect of one call in eight with a probability of 7e-5."""


@dataclass(frozen=True)
class Step:
    """One call of a candidate.

    ``content``: ``fresh`` draws a new member of ``family``; ``elements``, ``operand`` and ``row`` change the previous
    call's inputs a little; ``nan`` and ``inf`` plant; ``rows`` has another length of the first axis. ``buffer``: ``new``
    memory, ``refill`` the same tensor objects in place, ``reuse-freed`` new objects at an address used before.
    """

    family: str
    content: Content = "fresh"
    buffer: Buffer = "new"
    layout: str = "contiguous"
    operand: int | None = None
    update_parameters: bool = False
    poison: int = 0
    """Index into :data:`POISON_BYTES`."""
    burst: bool = False
    """Made back to back with the steps before it: nothing is read or checked in between."""
    pause_ms: int = 0
    hold: int = 1
    """Compare the output once more after so many further steps."""


def call_count(seconds_per_call: float, budget_s: float, least: int = LEAST_CALLS, usual: int = USUAL_CALLS) -> int:
    """How many calls a budget allows, between ``least`` and ``usual``."""
    if seconds_per_call <= 0:
        return usual
    return max(least, min(usual, int(budget_s / seconds_per_call)))


def schedule(
    rng: random.Random, families: Sequence[str], calls: int, operands: int, layouts: Sequence[str] = ("contiguous",)
) -> list[Step]:
    """A random sequence of about ``calls`` steps (a tenth more or less) that visits every family, content and buffer
    kind it has room for. Fresh draws, about six of ten steps, are of the families in their order, from the first one on.

    ``operands`` is the number of inputs that may change. The first step is always fresh, since the others start from
    a previous call.
    """
    total = max(1, calls + rng.randint(-(calls // 10), calls // 10))
    contents: list[Content] = [_content(rng, operands) if index else "fresh" for index in range(total)]
    steps = [_step(rng, family, content, operands, layouts) for family, content in _in_turn(families, contents)]
    steps[0] = replace(steps[0], buffer="new")
    for kind in _OF_AN_OPERAND:
        if operands and total > 4 and not any(step.content == kind for step in steps):
            spare = [i for i in range(1, total) if steps[i].content in ("fresh", "row")]
            place, operand = rng.choice(spare or range(1, total)), _operand(rng, kind, operands)
            steps[place] = replace(steps[place], content=kind, buffer="refill", layout="contiguous", operand=operand)
    return _with_bursts(rng, _with_updates(rng, steps))


def burst(rng: random.Random, families: Sequence[str], operands: int) -> list[Step]:
    """Ten to fourteen calls back to back, long enough to be taken for a timing loop, some of them changed a little."""
    count = rng.randint(10, 14)
    contents: list[Content] = ["fresh", *(_content(rng, operands) for _ in range(count - 1))]
    return [
        Step(family, content, operand=_operand(rng, content, operands), burst=True)
        for family, content in _in_turn(families, contents)
    ]


def fresh_families(steps: Iterable[Step]) -> Counter[str]:
    """How often each family is drawn anew."""
    return Counter(step.family for step in steps if step.content == "fresh")


def _in_turn(families: Sequence[str], contents: Sequence[Content]) -> Iterator[tuple[str, Content]]:
    """Each fresh content with the next family, any other with that of the call before, whose inputs it changes a little."""
    turn = -1
    for content in contents:
        turn += content == "fresh"
        yield families[turn % len(families)], content


def _operand(rng: random.Random, content: Content, operands: int) -> int | None:
    """Which input is changed; None where none is chosen."""
    return rng.randrange(operands) if operands and content in _OF_AN_OPERAND else None


def _content(rng: random.Random, operands: int) -> Content:
    kinds: tuple[Content, ...] = ("fresh", "elements", "operand", "row")
    return rng.choices(kinds, (6, 2, 1, 1))[0] if operands else "fresh"


def _step(rng: random.Random, family: str, content: Content, operands: int, layouts: Sequence[str]) -> Step:
    buffer: Buffer = rng.choices(("new", "refill", "reuse-freed"), (2, 3, 2))[0]
    layout = "contiguous" if buffer == "refill" else rng.choice(layouts)
    operand = _operand(rng, content, operands)
    return Step(
        family, content, buffer, layout, operand, poison=rng.randrange(len(POISON_BYTES)), hold=rng.choice((1, 1, 2, 3))
    )


def _with_updates(rng: random.Random, steps: list[Step]) -> list[Step]:
    """Parameters change every six steps or so, once within the first four."""
    marks = set(range(rng.randint(1, 3), len(steps), rng.randint(4, 8)))
    return [replace(step, update_parameters=index in marks) for index, step in enumerate(steps)]


def _with_bursts(rng: random.Random, steps: list[Step]) -> list[Step]:
    """Some stretches of eight to twelve calls run back to back, some calls come after a pause: a loop must not be
    recognisable by its rhythm.
    """
    result = list(steps)
    start = rng.randint(2, 5) if len(result) >= _WITH_BURSTS else len(result)
    while start + 8 < len(result):
        stop = min(len(result), start + rng.randint(8, 12))
        for index in range(start, stop):
            result[index] = replace(result[index], burst=True, update_parameters=False)
        start = stop + rng.randint(5, 9)
    if len(result) > 4 and not any(step.update_parameters for step in result):
        result[1] = replace(result[1], update_parameters=True)  # no burst starts as early
    return [replace(s, pause_ms=rng.randint(3, 12)) if not s.burst and rng.random() < 0.15 else s for s in result]


def poison_bytes(step: Step) -> int:
    """The byte to fill with before the call."""
    return POISON_BYTES[step.poison % len(POISON_BYTES)]
