"""Problems are looked at before money is spent: what is refused, with which reason, and what is learned of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tilecast.sandbox.base import EvaluationOptions, Preflight
from tilecast.sandbox.harness.judge.reference import Reference
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus
from tilecast.sandbox.source import Candidate

HEAD = "import torch\nimport torch.nn as nn\n\nWORKLOADS = {'small': {'n': 24}}\n\n\n"
TAIL = "\n\ndef get_inputs(n=512):\n    return [torch.randn(n, 12)]\n\n\ndef get_init_inputs():\n    return []\n"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSandbox]:
    made = LocalSandbox("cpu", state_dir=tmp_path_factory.mktemp("state"))
    yield made
    made.close()


def model(forward: str, init: str = "") -> str:
    body = f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init or 'pass'}\n\n"
    return HEAD + body + f"    def forward(self, x):\n        {forward}\n" + TAIL


def looked_at(sandbox: LocalSandbox, folder: Path, text: str) -> Preflight:
    folder.mkdir(exist_ok=True)
    (folder / "reference.py").write_text(text)
    return sandbox.preflight(load_problem(folder), lambda _: None)


def refusal(sandbox: LocalSandbox, folder: Path, text: str) -> str:
    answer = looked_at(sandbox, folder, text)
    assert answer.status is EvaluationStatus.INVALID_REFERENCE
    assert answer.facts is None
    return answer.reason


def test_a_sound_problem_passes_and_is_described_without_running_its_full_size(
    sandbox: LocalSandbox, tmp_path: Path
) -> None:
    text = model("return self.fc(x)", "self.fc = nn.Linear(12, 5)").replace("n=512", "n=1 << 40")
    answer = looked_at(sandbox, tmp_path, text)
    assert answer.status is EvaluationStatus.PASSED, answer.reason
    assert answer.facts is not None
    full = answer.facts.workload("full")
    assert full.inputs[0].shape == [1 << 40, 12]
    assert full.outputs[0].shape == [1 << 40, 5]
    assert full.flops == 2 * (1 << 40) * 12 * 5
    small = answer.facts.workload("small")
    assert small.min_bytes == 4 * (24 * 12 + 24 * 5 + 12 * 5 + 5)
    assert [item.name for item in answer.facts.parameters] == ["fc.weight", "fc.bias"]


def test_an_output_that_is_the_same_for_every_input_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    reason = refusal(sandbox, tmp_path, model("return torch.softmax(x, dim=1).mean(dim=1)"))
    assert "same for every input" in reason


def test_an_unused_parameter_is_named(sandbox: LocalSandbox, tmp_path: Path) -> None:
    text = model(
        "return x * self.used", "self.used = nn.Parameter(torch.rand(12)); self.idle = nn.Parameter(torch.rand(3))"
    )
    reason = refusal(sandbox, tmp_path, text)
    assert "parameter idle" in reason
    assert "used," not in reason


def test_an_unused_input_is_named(sandbox: LocalSandbox, tmp_path: Path) -> None:
    text = model("return x + 1").replace("def forward(self, x)", "def forward(self, x, y)")
    text = text.replace("return [torch.randn(n, 12)]", "return [torch.randn(n, 12), torch.randn(n, 12)]")
    assert "input 1" in refusal(sandbox, tmp_path, text)


def test_nan_in_the_reference_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    assert "NaN" in refusal(sandbox, tmp_path, model("return torch.log(x)"))


def test_infinities_by_design_are_accepted(sandbox: LocalSandbox, tmp_path: Path) -> None:
    answer = looked_at(sandbox, tmp_path, model("return x.masked_fill(x > 0, float('-inf'))"))
    assert answer.status is EvaluationStatus.PASSED, answer.reason


def test_a_forward_that_is_random_whatever_the_seed_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    forward = "return x + torch.rand(1, generator=torch.Generator().manual_seed(torch.seed()))"
    assert "same input and seed differ" in refusal(sandbox, tmp_path, model(forward))


@pytest.mark.parametrize("draw", ["random.random()", "numpy.random.rand()"])
def test_generators_that_no_candidate_has_seeded_make_a_forward_random(
    sandbox: LocalSandbox, tmp_path: Path, draw: str
) -> None:
    reason = refusal(sandbox, tmp_path, "import random\nimport numpy\n" + model(f"return x + {draw}"))
    assert "forward is random" in reason


@pytest.mark.parametrize(
    ("constant", "says"),
    [
        ("WORKLOADS = [1]", "WORKLOADS must be a dict of dicts of keyword arguments, not [1]"),
        ("WORKLOADS = {'small': 3}", "WORKLOADS must be a dict of dicts of keyword arguments, not {'small': 3}"),
        ("WORKLOADS = {3: {'n': 24}}", "dicts whose keys are texts"),
        ("WORKLOADS = {'small': {'n': object()}}", "a value of type 'object'"),
        ("TOLERANCE = 'x'", "TOLERANCE must be one number of 0 (exact) or more"),
        ("TOLERANCE = {'float32': 1e-3}", "TOLERANCE must be one number of 0 (exact) or more"),
        ("TOLERANCE = -1", "not -1"),
        ("TOLERANCE = True", "not True"),
        ("TOLERANCE = float('nan')", "not nan"),
        ("TOLERANCE = float('inf')", "not inf"),
        ("DOMAIN = 'closed'", "DOMAIN must be 'open' or 'declared', not 'closed'"),
        ("DOMAIN = 3", "not 3"),
    ],
)
def test_a_constant_that_makes_no_sense_is_named(
    sandbox: LocalSandbox, tmp_path: Path, constant: str, says: str
) -> None:
    assert says in refusal(sandbox, tmp_path, model("return x * 2") + f"\n\n{constant}\n")


def test_a_tolerance_of_nothing_means_exact(sandbox: LocalSandbox, tmp_path: Path) -> None:
    text = model("return x.flip(0).contiguous()") + "\n\nTOLERANCE = 0.0\n"
    answer = looked_at(sandbox, tmp_path, text)
    assert answer.status is EvaluationStatus.PASSED, answer.reason


def test_constants_of_all_recorded_problems_make_sense(shared_dir: Path, zygotes: Zygotes) -> None:
    for file in sorted((shared_dir / "corpus").glob("*/reference.py")):
        problem = {"name": file.parent.name, "source": file.read_text(encoding="utf-8")}
        reference = Reference.open(zygotes, problem, torch.device("cpu"))
        try:
            assert "full" in reference.workloads and reference.domain in ("open", "declared")
        finally:
            reference.close()


def test_a_failing_import_is_told_with_its_line(sandbox: LocalSandbox, tmp_path: Path) -> None:
    reason = refusal(sandbox, tmp_path, "import no_such_module\n" + model("return x"))
    assert "no_such_module" in reason
    assert "line 1" in reason


def test_a_failing_forward_is_told(sandbox: LocalSandbox, tmp_path: Path) -> None:
    assert "shape" in refusal(sandbox, tmp_path, model("return x @ x"))


def test_a_refused_problem_is_an_answer_for_its_candidates(sandbox: LocalSandbox, tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(model("return x * 0"))
    candidate = Candidate(name="any", source="import torch.nn as nn\n\nclass ModelNew(nn.Module):\n    pass\n")
    answer = sandbox.verify(load_problem(tmp_path), candidate, EvaluationOptions(), lambda _: None)
    assert answer.status is EvaluationStatus.INVALID_REFERENCE
    assert answer.source_sha256 == candidate.sha256


def test_without_a_small_workload_full_is_cut_to_what_a_cpu_can_do(sandbox: LocalSandbox, tmp_path: Path) -> None:
    text = model("return self.fc(x)", "self.fc = nn.Linear(512, 512)").replace("WORKLOADS = {'small': {'n': 24}}", "")
    answer = looked_at(sandbox, tmp_path, text.replace("n=512", "n=20_000").replace("n, 12", "n, 512"))
    assert answer.status is EvaluationStatus.PASSED, answer.reason
    assert answer.facts is not None
    assert any("input [0] cut to" in note for note in answer.facts.notes)


def test_strided_inputs_reach_the_candidate_as_get_inputs_makes_them(sandbox: LocalSandbox, tmp_path: Path) -> None:
    text = model("return x * 3").replace("torch.randn(n, 12)", "torch.randn(12, n).t()")
    (tmp_path / "reference.py").write_text(text.replace("WORKLOADS", "DOMAIN = 'declared'\nWORKLOADS"))
    source = (
        "import torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
        "        assert x.stride() == (1, x.shape[0]), x.stride()\n        return x * 3\n"
    )
    candidate = Candidate(name="strided", source=source)
    answer = sandbox.verify(load_problem(tmp_path), candidate, EvaluationOptions(), lambda _: None)
    assert answer.status is EvaluationStatus.PASSED, answer.reason
