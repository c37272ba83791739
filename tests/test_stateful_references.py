"""References that change something or draw at random: what is expected of them is as tight as of any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from tilecast.sandbox.harness.judge.case import agrees
from tilecast.sandbox.harness.judge.hangs import KnownHangs
from tilecast.sandbox.harness.judge.reference import fresh_seed
from tilecast.sandbox.harness.judge.study import Study, study_problem
from tilecast.sandbox.harness.judge.verify import Verifier
from tilecast.sandbox.harness.judge.zygotes import Zygotes
from tilecast.sandbox.harness.worker.reference import generator_states
from tilecast.sandbox.source import source_sha256

CPU = torch.device("cpu")
HEAD = "import torch\nimport torch.nn as nn\n"
TAIL = """
WORKLOADS = {"small": {"n": 20}}


def get_inputs(n=40):
    return [torch.randn(n, 6)]


def get_init_inputs():
    return []
"""
COUNTING = """
class NAME(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("running_mean", torch.zeros(6))

    def forward(self, x):
        self.count += 1
        if x.shape[0] == 1:
            raise ValueError("one row has no spread")
        self.running_mean.mul_(0.9).add_(x.mean(0), alpha=RATE)
        return x - x.mean(0)
"""
DRAWING = """
class NAME(nn.Module):
    def forward(self, x):
        return BODY
"""
Studied = Callable[[str], Study]


@pytest.fixture
def studied(zygotes: Zygotes) -> Iterator[Studied]:
    made: list[Study] = []

    def study(module: str) -> Study:
        source = HEAD + module.replace("NAME", "Model") + TAIL
        problem = {"name": "stateful", "source": source, "sha256": source_sha256(source)}
        made.append(study_problem(zygotes, problem, CPU, lambda text: None))
        return made[-1]

    yield study
    for item in made:
        item.close()


def verified(zygotes: Zygotes, study: Study, module: str, **options: object) -> tuple[str, str]:
    source = HEAD + module.replace("NAME", "ModelNew")
    candidate = {"name": "c", "source": source, "sha256": source_sha256(source)}
    verifier = Verifier(zygotes, study, CPU, KnownHangs(None))
    answer = verifier.verify(candidate, {"timeout_s": 60.0, **options}, lambda text: None)
    return answer["status"], answer["reason"]


def test_bounds_of_written_state_are_those_of_one_forward(studied: Studied) -> None:
    """The perturbed runs began where the float64 run had ended: a second step of the statistics passed for conditioning."""
    study = studied(COUNTING.replace("RATE", "0.1"))
    case, reference = study.cases[0], study.builder.reference
    inputs, seed = study.builder.inputs(case), fresh_seed()
    native = reference.run(inputs, seed, contract=case.contract)
    answer = study.builder.answer(case, inputs, native, seed)
    assert agrees(answer, native)
    count, mean = answer.outputs[1:]
    assert count.alternates == ()
    assert mean.allowed is not None and float(mean.allowed.per_row.max()) < 1e-5


def test_a_forward_that_fails_leaves_the_references_state_as_it_was(studied: Studied) -> None:
    study = studied(COUNTING.replace("RATE", "0.1"))
    case, reference = study.cases[0], study.builder.reference
    reference.set_state(case.state)
    with pytest.raises(Exception, match="one row"):
        reference.run([torch.randn(1, 6)], 1, contract=case.contract)
    assert int(reference.state()["count"]) == int(case.state["count"])


def test_candidates_that_keep_such_a_state(zygotes: Zygotes, studied: Studied) -> None:
    study = studied(COUNTING.replace("RATE", "0.1"))
    for _ in range(2):
        status, reason = verified(zygotes, study, COUNTING.replace("RATE", "0.1"))
        assert status == "PASSED", reason
    assert verified(zygotes, study, COUNTING.replace("RATE", "0.101"))[0] == "INCORRECT_NUMERICAL"
    skips = COUNTING.replace("RATE", "0.1").replace("self.count += 1", "pass")
    assert verified(zygotes, study, skips)[0] == "INCORRECT_NUMERICAL"


def test_a_reference_that_draws_is_its_own_truth_where_float64_draws_otherwise(
    zygotes: Zygotes, studied: Studied
) -> None:
    """Its numbers in float64 are others: with those for a truth the reference's own error was as large as its output."""
    study = studied(DRAWING.replace("BODY", "x * (torch.rand_like(x) > 0.5)"))
    for _ in range(5):
        inputs, seed = study.builder.inputs(study.cases[0]), fresh_seed()
        native = study.builder.reference.run(inputs, seed, contract=study.cases[0].contract)
        (only,) = study.builder.answer(study.cases[0], inputs, native, seed).outputs
        assert only.allowed is not None and only.allowed.own_error < 1e-6
    honest = DRAWING.replace("BODY", "torch.where(torch.rand_like(x) > 0.5, x, 0.0 * x)")
    status, reason = verified(zygotes, study, honest)
    assert status == "PASSED", reason
    other = DRAWING.replace("BODY", "x * (torch.rand(x.shape[::-1]).t() > 0.5)")
    assert verified(zygotes, study, other)[0] == "INCORRECT_NUMERICAL"


RESEEDS = """
class NAME(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.scale = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        return x * self.scale
"""


def test_a_constructor_sets_the_seed_only_where_the_references_does(zygotes: Zygotes, studied: Studied) -> None:
    quiet = RESEEDS.replace("        torch.manual_seed(3)\n", "")
    status, reason = verified(zygotes, studied(quiet), RESEEDS)
    assert status == "REWARD_HACK" and "constructor sets the seed" in reason
    assert verified(zygotes, studied(quiet), quiet)[0] == "PASSED"
    assert verified(zygotes, studied(RESEEDS), RESEEDS)[0] == "PASSED"


PRECISE = """
torch.set_float32_matmul_precision("LEVEL")


class NAME(nn.Module):
    @torch.inference_mode()
    def forward(self, x):
        return x @ x.t()
"""


def test_how_torch_computes_may_be_set_as_the_reference_sets_it_and_in_no_other_way(
    zygotes: Zygotes, studied: Studied
) -> None:
    """Who kept the problem's own header was told that he had changed his process."""
    study = studied(PRECISE.replace("LEVEL", "high"))
    assert study.reference.settings == {"torch.get_float32_matmul_precision()": "'high'"}
    for level, status in (("high", "PASSED"), ("highest", "PASSED"), ("medium", "REWARD_HACK")):
        found, reason = verified(zygotes, study, PRECISE.replace("LEVEL", level))
        assert found == status, reason
    strict = studied(PRECISE.replace("LEVEL", "highest"))
    assert strict.reference.settings == {}
    assert verified(zygotes, strict, PRECISE.replace("LEVEL", "high"))[0] == "REWARD_HACK"


POPS = """
class NAME(nn.Module):
    def forward(self, x, more):
        return x + more.pop()
"""


def test_a_list_that_the_reference_changes_may_be_changed(zygotes: Zygotes) -> None:
    source = (
        HEAD + POPS.replace("NAME", "Model") + TAIL.replace("torch.randn(n, 6)]", "torch.randn(n), [torch.randn(n)]]")
    )
    problem = {"name": "pops", "source": source, "sha256": source_sha256(source)}
    study = study_problem(zygotes, problem, CPU, lambda text: None)
    try:
        assert study.cases[0].contract.changes_containers
        assert verified(zygotes, study, POPS)[0] == "PASSED"
        assert verified(zygotes, study, POPS.replace("more.pop()", "more[0]"))[0] == "PASSED"
    finally:
        study.close()


def test_what_is_drawn_on_a_gpu_is_noticed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([torch.tensor([1]), torch.tensor([2])])
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: next(told))
    gpu, cpu = torch.device("cuda:0"), torch.device("cpu")
    before, after = generator_states(gpu), generator_states(gpu)
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, False]
    assert len(generator_states(cpu)) == 1
