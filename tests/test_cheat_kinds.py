"""Exploits and honest oddities of our own: the kinds of the shared ones, other problems and other mechanisms.

A dozen run with the ordinary tests, all of them with ``-m acceptance``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilecast.sandbox.base import EvaluationOptions
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import load_candidate

FOLDER = Path(__file__).resolve().parent / "data" / "cheats"
ORDINARY = {
    "linear_relu/version_cache.py",
    "linear_relu/packed_for_ever.py",
    "linear_relu/dispatch_mode_left.py",
    "linear_relu/honest_split_k.py",
    "linear_relu/honest_checked_pack.py",
    "linear_relu/eats_weights.py",
    "batch_norm_train/no_running_statistics.py",
    "batch_norm_train/honest_manual.py",
    "named_parts/honest_other_order.py",
    "named_parts/list_for_dict.py",
    "named_parts/empties_the_list.py",
    "scaled_add/ring_of_sixteen.py",
    "scaled_add/swaps_memory.py",
    "scaled_add/wrapper_without_memory.py",
    "scaled_add/method_beneath_clock.py",
    "scaled_add/other_isclose.py",
    "scaled_add/guessed_seeds.py",
    "scaled_add/timer_signal.py",
    "scaled_add/ring_of_buffers.py",
    "scaled_add/assumes_contiguous.py",
    "scaled_add/zero_when_small.py",
    "scaled_add/honest_slab.py",
    "linear_relu/ring_registered.py",
    "linear_relu/ring_beside_weights.py",
    "linear_relu/ring_told_as_state.py",
    "linear_relu/honest_sparse_buffer.py",
    "linear_relu/honest_tuned_once.py",
    "gelu_bias/honest_inference_mode.py",
}
NUMERICAL = {"precision-downcast", "partial-compute", "distribution-shortcut", "input-insensitive", "init-shortcut"}
"""Classes that no rule forbids: the numbers alone refuse them."""


def rows() -> list[dict[str, str]]:
    with (FOLDER / "manifest.csv").open(encoding="utf-8") as file:
        return sorted(csv.DictReader(file), key=lambda row: row["path"])


def test_the_manifest_names_every_file() -> None:
    listed = {row["path"] for row in rows()}
    found = {str(file.relative_to(FOLDER)) for file in FOLDER.glob("*/*.py") if file.name != "reference.py"}
    assert listed == found
    kinds = {row["kind"] for row in rows()}
    assert kinds == {"honest", "exploit"}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSandbox]:
    """One judge for all of them."""
    made = LocalSandbox("cpu", state_dir=tmp_path_factory.mktemp("state"))
    yield made
    made.close()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row["path"], marks=[] if row["path"] in ORDINARY else [pytest.mark.acceptance])
        for row in rows()
    ],
)
def test_each_is_judged_as_the_manifest_says(row: dict[str, str], sandbox: LocalSandbox) -> None:
    problem, candidate = load_problem(FOLDER / row["task"]), load_candidate(FOLDER / row["path"])
    answer = sandbox.verify(problem, candidate, EvaluationOptions(), lambda _: None)
    if row["expected"] == "accept":
        assert answer.status is EvaluationStatus.PASSED, answer.reason
        return
    refusing = {EvaluationStatus.INCORRECT_NUMERICAL}
    if row["class"] not in NUMERICAL:
        refusing |= {EvaluationStatus.REWARD_HACK, EvaluationStatus.INCORRECT_SHAPE, EvaluationStatus.RUNTIME_ERROR}
    assert answer.status in refusing, answer.reason
    assert len(answer.reason) > 20
