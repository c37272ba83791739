"""What candidates are asked stays complete however many there were: kept questions are dropped and drawn anew, family by family."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from tilecast.sandbox.harness.judge.changes import change_elements
from tilecast.sandbox.harness.judge.hangs import KnownHangs
from tilecast.sandbox.harness.judge.input_profiles import profile_inputs
from tilecast.sandbox.harness.judge.probes import Step, schedule
from tilecast.sandbox.harness.judge.segments import Segment
from tilecast.sandbox.harness.judge.study import study_problem
from tilecast.sandbox.harness.judge.verify import Verifier
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.source import source_sha256

CPU = torch.device("cpu")
REFERENCE = """
import torch
import torch.nn as nn

WORKLOADS = {'small': {'n': 6}}


class Model(nn.Module):
    def forward(self, x, y):
        return x + 0.75 * y


def get_inputs(n=64):
    return [torch.randn(n, n), torch.randn(n, n)]


def get_init_inputs():
    return []
"""
HONEST = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.add(x, y, alpha=0.75)
"""
# Keeps its last answer as long as the sums of its operands are the same: two elements that change places go unseen.
KEEPS_BY_SUM = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    mark = kept = None

    def forward(self, x, y):
        mark = (x.shape, float(x.double().sum()), float(y.double().sum()))
        if mark != self.mark:
            self.mark, self.kept = mark, torch.add(x, y, alpha=0.75)
        return self.kept.clone()
"""
# Right wherever both operands are of like size; in the small ones the other operand alone is returned.
SHORTCUT = HONEST.replace(
    "        return",
    "        small = 0.03 * float(x.reshape(-1)[0].abs())\n"
    "        if float(y.reshape(-1)[0].abs()) < small:\n            return x.clone()\n        return",
)

# Keeps its last answer as long as eight sampled elements are the same.
KEEPS = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    mark = kept = None

    def forward(self, x, y):
        mark = [tuple(z.reshape(-1)[:: max(1, z.numel() // 8)].tolist()) for z in (x, y)]
        if mark != self.mark:
            self.mark, self.kept = mark, torch.add(x, y, alpha=0.75)
        return self.kept.clone()
"""


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    zygotes = Zygotes()
    problem = {"name": "add", "source": REFERENCE, "sha256": source_sha256(REFERENCE)}
    study = study_problem(zygotes, problem, CPU, lambda text: None)
    yield Verifier(zygotes, study, CPU, KnownHangs(None))
    study.close()
    zygotes.close()


def verified(verifier: Verifier, source: str, number: int) -> str:
    text = f"{source}# {number}\n"
    candidate = {"name": "k", "source": text, "sha256": source_sha256(text)}
    return str(verifier.verify(candidate, {"timeout_s": 60.0}, lambda said: None)["status"])


def test_after_many_candidates_every_family_and_kind_is_still_asked(verifier: Verifier) -> None:
    names = set(verifier.study.makers["small"]._choices)
    assert {"one-small (input 0)", "one-small (input 1)", "scaled-rows"} <= names
    for number in range(25):
        assert verified(verifier, HONEST, number) == "PASSED"
    found: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for segment in [segment for kept in verifier.study.store.kept.values() for segment in kept]:
        found.update(call.step.family for call in segment.calls if call.step.content == "fresh")
        kinds.update(call.step.content for call in segment.calls)
    assert len(names - set(found)) <= 3, f"no longer asked: {names - set(found)}"
    assert kinds["elements"] >= 3 and kinds["fresh"] >= 10, kinds
    # How small the other operand is, is drawn too: about one in two hundred meets none that is small enough.
    assert [verified(verifier, SHORTCUT, number) for number in range(10)].count("PASSED") <= 1
    assert [verified(verifier, KEEPS, number) for number in range(10)].count("PASSED") == 0
    # A collision of sums asks for two calls in a row whose difference is such an exchange: most of the time there is one.
    assert [verified(verifier, KEEPS_BY_SUM, number) for number in range(10)].count("PASSED") <= 4


def test_few_calls_go_to_the_families_that_come_first() -> None:
    families = [f"f{number}" for number in range(16)]
    for seed in range(50):
        few = schedule(random.Random(seed), families, 4, 2)
        assert {step.family for step in few} <= set(families[:5])


def test_a_short_plan_finds_room_for_both_kinds_of_change() -> None:
    for seed in range(20_000):  # now and then nothing is left that is fresh
        kinds = {step.content for step in schedule(random.Random(seed), ["a", "b"], 6, 1)}
        assert "operand" in kinds


def test_small_changes_keep_sums_half_of_the_time() -> None:
    profiles = profile_inputs([[torch.randn(6, 8)], [torch.randn(6, 8)]])
    generator = torch.Generator().manual_seed(3)
    kept = moved = 0
    for _ in range(60):
        before, donor = torch.randn(6, 8), torch.randn(6, 8)
        made = change_elements(profiles, [before], [donor], generator)
        assert made is not None and 1 <= int((made[0] != before).sum()) <= 3
        same = torch.equal(made[0].reshape(-1).sort().values, before.reshape(-1).sort().values)
        kept, moved = kept + same, moved + (not same)
    assert kept > 15 and moved > 15
    alike = change_elements(profiles, [torch.ones(6, 8)], [torch.randn(6, 8)], generator)
    assert alike is not None and not torch.equal(alike[0], torch.ones(6, 8)), "there is nothing to exchange"


def test_what_kept_segments_lack_is_drawn_first(verifier: Verifier) -> None:
    maker = verifier.study.makers["small"]
    one = next(name for name in maker._choices if name.startswith("scaled"))
    kept = [Segment(verifier.study.cases[0], {}, [_Asked(name) for name in maker._choices if name != one])]  # type: ignore[list-item]
    for _ in range(10):
        steps = [step for steps in maker.plan(3, kept) for step in steps if step.content == "fresh"]
        assert steps[0].family == one
    firsts = {maker.plan(1)[0][0].family for _ in range(60)}
    assert len(firsts) > 8, "with nothing kept, the choice is random"


class _Asked:
    """A kept call, as far as planning looks at it."""

    def __init__(self, family: str) -> None:
        self.step = Step(family)
