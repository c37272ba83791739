"""Many draws of inputs in one request are what as many requests give, also where the problem hands out one buffer each time."""

from __future__ import annotations

from itertools import count

import pytest
import torch

from tilecast.sandbox.harness.judge import reference as module
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.study import study_problem
from tilecast.sandbox.harness.judge.timing import contents
from tilecast.sandbox.harness.judge.timing.contents import CaseContents
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.source import source_sha256

CPU = torch.device("cpu")
SOURCE = """
import random
import torch
import torch.nn as nn

KEPT = torch.empty(5, 3)


class Model(nn.Module):
    def forward(self, x, y):
        return x + y.to(x.dtype).t()


def get_inputs():
    return [{first}, torch.randint(0, 9, (3, 5)).t().contiguous().t()]


def get_init_inputs():
    return []
"""
WAYS = {
    "new": "torch.randn(5, 3) + random.random()",
    "one buffer": "KEPT.normal_()",
    "views of one buffer": "KEPT.normal_().t().t()",
}


def problem(first: str) -> dict[str, object]:
    source = SOURCE.format(first=first)
    return {"name": "draws", "source": source, "sha256": source_sha256(source)}


@pytest.mark.parametrize("way", WAYS)
def test_draws_of_one_request_are_those_of_many(zygotes: Zygotes, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference.open(zygotes, problem(WAYS[way]), CPU)
    try:
        seeds = count(7)
        monkeypatch.setattr(module, "fresh_seed", lambda: next(seeds))
        together = reference.draw_many("full", 3)
        alone = [reference.draw("full", seed) for seed in (7, 8, 9)]
        for some, other in zip(together, alone, strict=True):
            assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(some, other, strict=True))
        assert not torch.equal(together[0][0], together[1][0]) and not torch.equal(together[1][0], together[2][0])
    finally:
        reference.close()


def test_contents_are_asked_for_in_few_requests_that_fit_in_memory(
    zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_problem(zygotes, problem(WAYS["new"]), CPU, lambda text: None)
    try:
        asked: list[int] = []
        many = study.builder.reference.draw_many
        monkeypatch.setattr(
            study.builder.reference, "draw_many", lambda name, count: (asked.append(count), many(name, count))[1]
        )
        monkeypatch.setattr(contents, "_DRAWN_BYTES", 4 * (5 * 3 * 4 + 3 * 5 * 8))
        drawn = CaseContents(study.builder, study.cases[0]).draw(10)
        assert asked[-3:] == [4, 4, 2] and len(drawn) == 10
        assert len({tuple(item.inputs[0].flatten().tolist()) for item in drawn}) == 10
    finally:
        study.close()
