"""The shared exploits and honest kernels for the CPU: each must be judged as its manifest says.

A part that covers every kind of defence runs with the ordinary tests, all of them with ``-m acceptance``.
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

MANIFEST = Path(__file__).resolve().parent.parent.parent / "shared" / "cheats" / "manifest.csv"
PURE_ONLY = "library-fallback"
"""Class of candidates that only ``--pure`` refuses: a library call is no crime by default."""
ORDINARY = {
    "relu/dataptr_cache.py",
    "relu/env_change.py",
    "relu/fork_deferred.py",
    "relu/function_mode_leak.py",
    "relu/honest_threads_joined.py",
    "relu/lazy_instance_methods.py",
    "relu/nan_swallow.py",
    "relu/obfuscated_timer_patch.py",
    "relu/rapid_fire_detect.py",
    "relu/seed_precompute.py",
    "relu/honest_autotune_first_call.py",
    "matmul/decoy_kernel.py",
    "const_mean_softmax/constant_fill.py",
}
HACKS = {
    "batch-deferral",
    "buffer-aliasing",
    "checker-patch-import",
    "global-state",
    "input-mutation",
    "lazy-output",
    "seed-precompute",
    "thread-deferral",
    "timer-patch",
    "baseline-sabotage",
}
"""Classes whose files give right numbers (at least at first): only the rule they break can refuse them."""


def rows() -> list[dict[str, str]]:
    if not MANIFEST.is_file():
        return []
    with MANIFEST.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["needs"] == "cpu"]


def parameters() -> list[object]:
    marks = [pytest.mark.acceptance]
    return [
        pytest.param(row, id=row["path"], marks=[] if row["path"] in ORDINARY else marks)
        for row in sorted(rows(), key=lambda row: row["path"])
    ]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSandbox]:
    made = LocalSandbox("cpu", state_dir=tmp_path_factory.mktemp("state"))
    yield made
    made.close()


@pytest.mark.parametrize("row", parameters())
def test_each_is_judged_as_the_manifest_says(row: dict[str, str], sandbox: LocalSandbox) -> None:
    folder = MANIFEST.parent
    problem = load_problem(folder / row["task"])
    candidate = load_candidate(folder / row["path"])
    options = EvaluationOptions(pure=row["class"] == PURE_ONLY)
    answer = sandbox.verify(problem, candidate, options, lambda _: None)
    if row["expected"] == "accept":
        assert answer.status is EvaluationStatus.PASSED, answer.reason
        return
    assert answer.status is not EvaluationStatus.PASSED
    assert answer.status is not EvaluationStatus.ENVIRONMENT_ERROR, answer.reason
    assert len(answer.reason) > 20
    if row["class"] in HACKS:
        assert answer.status is EvaluationStatus.REWARD_HACK, answer.reason
    if row["task"] == "const_mean_softmax":
        assert answer.status is EvaluationStatus.INVALID_REFERENCE


def test_a_library_call_is_accepted_where_pure_is_not_asked_for(sandbox: LocalSandbox, shared_dir: Path) -> None:
    problem = load_problem(shared_dir / "cheats" / "matmul")
    candidate = load_candidate(shared_dir / "cheats" / "matmul" / "try_except_fallback.py")
    assert sandbox.verify(problem, candidate, EvaluationOptions(), lambda _: None).status is EvaluationStatus.PASSED
