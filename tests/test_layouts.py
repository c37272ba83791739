"""Layouts are asked of candidates only where the reference's own answer does not depend on what lies around its inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from tilecast.sandbox.harness.judge.case import CaseBuilder
from tilecast.sandbox.harness.judge.changes import layout_kinds
from tilecast.sandbox.harness.judge.failure import ProblemRefused
from tilecast.sandbox.harness.judge.hangs import KnownHangs
from tilecast.sandbox.harness.judge.layouts import LayoutBroke
from tilecast.sandbox.harness.judge.probes import Step
from tilecast.sandbox.harness.judge.runs import NativeRun
from tilecast.sandbox.harness.judge.script import ScriptMaker
from tilecast.sandbox.harness.judge.segments import Call
from tilecast.sandbox.harness.judge.study import Study, study_problem
from tilecast.sandbox.harness.judge.verify import Verifier
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.tensors import TensorSpec, place
from tilecast.sandbox.harness.worker.copies import clone_laid_out
from tilecast.sandbox.source import source_sha256

CPU = torch.device("cpu")
SIZE = "x.untyped_storage().nbytes() // x.element_size() - x.numel()"
LEAK = f"leak = (x.as_strided(({SIZE},), (1,), x.numel()) * 0).sum()"
"""What lies in the storage behind as many elements as there are, times zero: as kernels do that mask by probabilities."""
ALWAYS = f"{LEAK}; return torch.relu(x) + leak"
AT_TIMES = f"{LEAK}; return torch.relu(x) + leak if float(x.abs().amax()) > 300 else torch.relu(x)"
DRAWS = "r = torch.rand(x.shape); return x * (r if x.data_ptr() % 16 == 0 and x.is_contiguous() else 1 - r)"
"""Other numbers from the same seed where the input's start or strides do not let several be read at once, as a GPU's dropout."""
FALLS = "return torch.relu(x) if x.data_ptr() % 16 == 0 else os.abort()"
"""As a kernel that reads sixteen bytes at once does on a GPU: its process is of no use any more."""
Studied = Callable[[str], Study]


def module(name: str, forward: str) -> str:
    head = "import os\nimport torch\nimport torch.nn as nn\n\n\n"
    return f"{head}class {name}(nn.Module):\n    def forward(self, x):\n        {forward}\n"


@pytest.fixture
def studied(zygotes: Zygotes) -> Iterator[Studied]:
    """Studies a problem whose forward is given."""
    made: list[Study] = []

    def study(forward: str, inputs: str = "torch.randn(n, 12)") -> Study:
        tail = f"\ndef get_inputs(n=40):\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
        source = module("Model", forward) + "\n\nWORKLOADS = {'small': {'n': 21}}\n" + tail
        problem = {"name": "leak", "source": source, "sha256": source_sha256(source)}
        made.append(study_problem(zygotes, problem, CPU, lambda text: None))
        return made[-1]

    yield study
    for item in made:
        item.close()


def verified(zygotes: Zygotes, study: Study, forward: str) -> tuple[str, str]:
    source = module("ModelNew", forward)
    candidate = {"name": "c", "source": source, "sha256": source_sha256(source)}
    answer = Verifier(zygotes, study, CPU, KnownHangs(None)).verify(candidate, {"timeout_s": 60.0}, lambda text: None)
    return answer["status"], answer["reason"]


def calls(study: Study, *steps: Step) -> list[Call]:
    case = study.cases[0]
    drawn = ScriptMaker(study.builder, case, random.Random(1)).segment(list(steps))
    return [item for item in drawn if isinstance(item, Call)]


def test_what_lies_between_and_behind_rows_is_nan_for_the_reference() -> None:
    spec = TensorSpec((3, 4), torch.bfloat16, (7, 1))
    given = place(torch.zeros(spec.extent, dtype=torch.uint8), spec).copy_(torch.arange(12.0).reshape(3, 4))
    copy = clone_laid_out(given)
    assert torch.equal(copy, given) and copy.stride() == given.stride()
    held = torch.empty(0, dtype=torch.bfloat16).set_(copy.untyped_storage())
    behind = held[18:]
    assert bool(torch.isnan(held[[4, 5, 6, 11, 12, 13]]).all())
    assert behind.numel() >= 1 << 19 and bool(torch.isnan(behind).all())


@pytest.mark.parametrize(
    "given", [torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3).t(), torch.zeros(0)]
)
def test_a_copy_without_gaps_has_nothing_around_it(given: torch.Tensor) -> None:
    copy = clone_laid_out(given)
    assert torch.equal(copy, given) and copy.stride() == given.stride()
    assert copy.untyped_storage().nbytes() == given.numel() * given.element_size()


def test_a_layout_in_which_the_reference_gives_something_else_is_not_asked(zygotes: Zygotes, studied: Studied) -> None:
    study = studied(ALWAYS)
    assert set(study.cases[0].layouts) == set(layout_kinds("open")) - {"padded-rows"}
    status, reason = verified(zygotes, study, "return x.clamp(min=0)")
    assert status == "PASSED", reason
    for wrong in ("return x.clamp(min=0) * 0.99", "return x * float('nan')"):
        assert verified(zygotes, study, wrong)[0] == "INCORRECT_NUMERICAL"
    flat = "return torch.relu(x.as_strided(x.shape, (x.shape[1], 1), x.storage_offset()))"
    status, reason = verified(zygotes, study, flat)
    assert status != "PASSED" and "layout" in reason, "the layouts that are left are asked as before"


def test_a_layout_that_changes_a_number_is_not_asked_either(studied: Studied) -> None:
    study = studied("return torch.relu(x) + 0.01 * (x.stride(0) == 15)")
    assert "padded-rows" not in study.cases[0].layouts


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return torch.relu(x)", "torch.randn(n, 12)"),
        ("return torch.nn.functional.dropout(x, 0.5)", "torch.randn(n, 12)"),
        ("return torch.log(torch.relu(x))", "torch.randn(n, 12)"),
        (
            "return x.argmax(-1) if x.stride(0) == 12 else 11 - x.flip(-1).argmax(-1)",
            "torch.randn(n, 12).mul(2).round()",
        ),
    ],
    ids=["plain", "random", "infinite", "ties"],
)
def test_references_that_take_a_layout_keep_it(studied: Studied, forward: str, inputs: str) -> None:
    assert "padded-rows" in studied(forward, inputs).cases[0].layouts


def test_a_layout_in_which_something_leaks_at_times_is_given_up(zygotes: Zygotes, studied: Studied) -> None:
    study = studied(AT_TIMES)
    padded = Step("normal", layout="padded-rows"), Step("large", layout="padded-rows")
    before, leaking, after = calls(study, padded[0], padded[1], padded[0])
    assert before.step.layout == "padded-rows" and before.layouts
    assert leaking.step.family == "large" and leaking.step.layout == "contiguous" and not leaking.layouts
    assert leaking.answer.finite
    assert after.step.layout == "contiguous" and not after.layouts
    assert "padded-rows" not in study.cases[0].layouts and "column-major" in study.cases[0].layouts
    status, reason = verified(zygotes, study, "return x.clamp(min=0)")
    assert status == "PASSED", reason


def test_infinities_that_belong_to_the_values_are_no_leak(studied: Studied) -> None:
    study = studied("return torch.log(torch.relu(x))")
    (call,) = calls(study, Step("normal", layout="padded-rows"))
    assert call.step.layout == "padded-rows" and call.layouts and not call.answer.finite
    assert "padded-rows" in study.cases[0].layouts


def test_an_input_starts_as_far_into_its_storage_for_the_reference_as_for_a_candidate() -> None:
    given = torch.arange(6.0).reshape(2, 3)
    copy = clone_laid_out(given, 1)
    assert torch.equal(copy, given) and copy.stride() == given.stride()
    assert copy.storage_offset() == 1 and copy.data_ptr() % 16 == 4
    assert bool(torch.isnan(torch.empty(0).set_(copy.untyped_storage())[0]))


def test_a_forward_whose_draws_depend_on_the_layout_is_asked_without(zygotes: Zygotes, studied: Studied) -> None:
    study = studied(DRAWS)
    assert study.cases[0].contract.consumes_rng
    assert study.cases[0].layouts == ["contiguous", "offset-aligned"]
    status, reason = verified(zygotes, study, DRAWS)
    assert status == "PASSED", reason
    assert verified(zygotes, study, "r = torch.rand(x.shape); return x * (1 - r)")[0] == "INCORRECT_NUMERICAL"


def test_a_forward_whose_draws_are_the_same_in_every_layout_is_asked_for_all(studied: Studied) -> None:
    study = studied("return x * torch.rand(x.shape)")
    assert study.cases[0].contract.consumes_rng and study.cases[0].layouts == layout_kinds("open")


def test_a_layout_that_ends_the_reference_costs_the_layout_alone(zygotes: Zygotes, studied: Studied) -> None:
    study = studied(FALLS)
    assert set(study.cases[0].layouts) == set(layout_kinds("open")) - {"offset-unaligned"}
    assert any("offset-unaligned" in note for note in study.notes)
    status, reason = verified(zygotes, study, FALLS)
    assert status == "PASSED", reason


@pytest.mark.parametrize(
    ("status", "alive", "raised"),
    [
        ("OUT_OF_MEMORY", True, ProblemRefused),
        ("OUT_OF_MEMORY", False, LayoutBroke),
        ("INVALID_REFERENCE", True, LayoutBroke),
        ("INVALID_REFERENCE", False, LayoutBroke),
    ],
)
def test_want_of_memory_is_no_fault_of_a_layout(studied: Studied, status: str, alive: bool, raised: type) -> None:
    """Other judges may have it for a while: the study is made once more, with all layouts."""

    def fails(*given: object, **more: object) -> None:
        raise ProblemRefused(status, "told")

    case = studied("return torch.relu(x)").cases[0]
    session = SimpleNamespace(options=SimpleNamespace(device=CPU), alive=alive)
    builder = CaseBuilder(SimpleNamespace(session=session, select=lambda name: None, run=fails))  # type: ignore[arg-type]
    with pytest.raises(raised):
        builder._accepts(case, [torch.zeros(3, 4)], "padded-rows", NativeRun([], 0, (), {}, {}), 1)
