"""The mutation set: caught on sound problems, passing on weak ones, and the advice says what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle_parts import Plain, answer_of, forward
from torch import Tensor

from tilecast.sandbox.harness.judge import mutations
from tilecast.sandbox.harness.judge.compare import compare_values
from tilecast.sandbox.harness.judge.mutations import (
    HALF,
    ONE_ROW,
    OUTPUT_MUTATIONS,
    Mutation,
    constant_axes,
    identities,
    lower_precisions,
    mutate_outputs,
    round_to,
    rounded_inputs,
    rounded_outputs,
)
from tilecast.sandbox.local import LocalSandbox
from tilecast.sandbox.problem import load_problem

REFERENCES: dict[str, Callable[[Tensor], Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "sum": lambda x: x.sum(-1),
    "scalar": lambda x: (x * x).mean(),
    "square": lambda x: x * x,
    "transpose": lambda x: x.t().contiguous(),
    "max": lambda x: tuple(x.max(-1)),
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mutation", OUTPUT_MUTATIONS, ids=lambda m: m.name)
def test_every_output_mutation_is_caught(name: str, dtype: torch.dtype, mutation: Mutation) -> None:
    x = normal(24, 300).to(dtype)
    module = Plain(REFERENCES[name])
    right = forward(module, [x])
    made = mutate_outputs(mutation, right)
    if made is None:
        assert name == "scalar" and mutation.name in ("mean", "row-mean", "one-row-wrong")
        return
    if name in ("scalar", "sum") and mutation.name == "0.99x" and dtype is torch.bfloat16:
        pytest.skip("one per cent is within what a few bfloat16 numbers may be off")
    assert [(m.shape, m.dtype) for m in made] == [(r.shape, r.dtype) for r in right]
    result = compare_values(answer_of(module, [x]), made)
    assert not result.passed, f"{mutation.name} passes on {name}"


@pytest.mark.parametrize("precision", lower_precisions(torch.float32))
def test_lower_precision_is_caught_on_zero_mean_data(precision: str) -> None:
    module = Plain(lambda a, b: a @ b)
    inputs = [normal(16, 512), normal(512, 16, seed=1)]
    answer = answer_of(module, inputs)
    assert not compare_values(answer, forward(module, rounded_inputs(inputs, precision))).passed
    short = rounded_outputs(forward(module, inputs), precision)
    assert short is not None and not compare_values(answer, short).passed


def test_rounding_is_to_nearest_and_comes_back_in_the_same_type() -> None:
    x = normal(1000)
    assert torch.equal(round_to(x, "float16"), x.half().float())
    tf32 = round_to(x, "tf32")
    assert float(((tf32 - x) / x).abs().max()) <= 2.0**-11
    assert int((tf32.view(torch.int32) & 0x1FFF).abs().max()) == 0
    odd = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e30])
    assert torch.equal(round_to(odd, "tf32").isnan(), odd.isnan())
    assert torch.isfinite(round_to(torch.tensor([1e30]), "float16")).all()
    assert rounded_inputs([3, torch.arange(4)], "float16")[1].dtype is torch.int64
    assert rounded_outputs([torch.arange(4)], "float16") is None


def test_half_and_one_row_leave_the_rest_alone() -> None:
    x = normal(6, 5)
    half, row = mutate_outputs(HALF, [x]), mutate_outputs(ONE_ROW, [x])
    assert half is not None and torch.equal(half[0][:3], x[:3]) and not half[0][3:].any()
    assert row is not None and torch.equal(row[0][1:], x[1:]) and torch.equal(row[0][0], x[-1])
    assert mutate_outputs(ONE_ROW, [torch.ones(6, 5)]) is None, "a constant output has no wrong row"


def test_identity_needs_an_input_that_fits() -> None:
    x = normal(4, 4)
    assert len(identities([x], [x, normal(3, 3), 2, torch.arange(16).reshape(4, 4)])) == 1
    assert identities([x, x], [x]) == []


def test_constant_axes() -> None:
    draws = [[normal(4, 6, seed=s)] for s in range(2)]
    assert constant_axes(draws) == []
    assert constant_axes([[d[0][:, :1].expand(4, 6)] for d in draws]) == ["output 0, axis 1"]
    assert constant_axes([[torch.full((4,), 1 / 50) * (1 + 1e-7)] for _ in draws]) == ["output 0, axis 0"]


def test_names_are_unique_and_all_have_advice() -> None:
    others = (mutations.IDENTITY, mutations.STALE, mutations.LOW_OUTPUT, mutations.LOW_INPUT)
    every = (*OUTPUT_MUTATIONS, *others)
    assert len({m.name for m in every}) == len(every) == 11
    assert all(m.advice and m.means for m in every)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSandbox]:
    """One judge for all lints of this file."""
    made = LocalSandbox("cpu", state_dir=tmp_path_factory.mktemp("state"))
    yield made
    made.close()


def problem_file(folder: Path, body: str, inputs: str, head: str = "") -> Path:
    file = folder / "problem.py"
    file.write_text(
        f"import torch\nimport torch.nn as nn\n{head}\n\n"
        f"class Model(nn.Module):\n    def forward(self, *x):\n        {body}\n\n"
        f"def get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return file


def lint(sandbox: LocalSandbox, file: Path) -> dict[str, Any]:
    return sandbox.lint(load_problem(file), lambda _: None)


def passing(report: dict[str, Any]) -> set[str]:
    return {item["name"] for item in report["mutations"] if item["would_pass"]}


def test_a_sound_problem_is_not_weak(sandbox: LocalSandbox, tmp_path: Path) -> None:
    report = lint(sandbox, problem_file(tmp_path, "return torch.softmax(x[0], -1)", "[torch.rand(24, 257)]"))
    assert not report["weak"] and passing(report) == set()
    caught = {item["name"] for item in report["mutations"]}
    assert {"zeros", "mean", "identity", "stale", "nan", "0.99x", "one-row-wrong", "half-the-rows"} <= caught
    assert {"low-precision-inputs (tf32)", "low-precision-output (bfloat16)"} <= caught
    assert all(item["detail"] for item in report["mutations"])


def test_identity_passes_where_relu_only_sees_positive_numbers(sandbox: LocalSandbox, tmp_path: Path) -> None:
    declared = problem_file(tmp_path, "return torch.relu(x[0])", "[torch.rand(24, 64)]", 'DOMAIN = "declared"')
    report = lint(sandbox, declared)
    assert report["weak"] and passing(report) == {"identity"}
    assert any("other signs" in line for line in report["advice"])
    opened = problem_file(tmp_path, "return torch.relu(x[0])", "[torch.rand(24, 64)]")
    assert not lint(sandbox, opened)["weak"]


def test_rounded_operands_pass_where_rounding_averages_out(sandbox: LocalSandbox, tmp_path: Path) -> None:
    body, inputs = "return x[0] @ x[1]", "[torch.rand(8, 32768), torch.rand(32768, 8)]"
    report = lint(sandbox, problem_file(tmp_path, body, inputs, 'DOMAIN = "declared"'))
    assert any(name.startswith("low-precision-inputs") for name in passing(report))
    assert any("zero-mean" in line for line in report["advice"])
    assert not lint(sandbox, problem_file(tmp_path, body, inputs))["weak"]


def test_a_loose_tolerance_is_not_what_decides(sandbox: LocalSandbox, tmp_path: Path) -> None:
    file = problem_file(tmp_path, "return torch.softmax(x[0], -1)", "[torch.randn(8, 999)]", "TOLERANCE = 0.5")
    assert not lint(sandbox, file)["weak"]


def test_a_constant_answer_is_refused_before_any_kernel(sandbox: LocalSandbox, tmp_path: Path) -> None:
    file = problem_file(tmp_path, "return torch.softmax(x[0], 1).mean(1)", "[torch.randn(16, 50)]")
    report = lint(sandbox, file)
    assert report["weak"] and report["mutations"] == []
    assert "refused" in report["advice"][0]
    assert sandbox.preflight(load_problem(file), lambda _: None).status == "INVALID_REFERENCE"


def test_an_unused_input_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    file = problem_file(tmp_path, "return x[0] * 2 + 0 * x[1]", "[torch.randn(9, 5), torch.randn(9, 5)]")
    assert "input 1" in sandbox.preflight(load_problem(file), lambda _: None).reason
