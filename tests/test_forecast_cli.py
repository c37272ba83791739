"""``forecast``, ``study`` and ``forecaster`` as commands: documents by the contract, words on stderr, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from forecast_parts import EAGER, KERNEL, REFERENCE, STRIDED
from loop_parts import SLOW, Scripted, make_request, making
from test_study import corpus
from typer.testing import CliRunner

from tilecast.agent.cli.app import app
from tilecast.agent.config import Settings
from tilecast.agent.engine import EVIDENCE_FAILURES, Engine, evidence_provider
from tilecast.sandbox import bins
from tilecast.sandbox.corpus import load_corpus
from tilecast.sandbox.errors import CandidateError, EnvironmentFailure, UsageError
from tilecast.sandbox.evidence import EvidenceCollector
from tilecast.sandbox.source import check_defines_model
from tilecast.tools.study.collecting import collect
from tilecast.tools.study.evidence_file import read_evidence, shipped_evidence, write_evidence

FIELDS = {
    "latency_ms", "baseline", "baseline_ms", "bins", "speedup", "p_faster", "p_valid", "abstain", "why", "source", "cost",
    "evidence",
}  # fmt: skip


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A problem and three candidates, nothing recorded beside them."""
    texts = {"reference": REFERENCE, "good": KERNEL, "strided": STRIDED, "eager": EAGER}
    found = {name: tmp_path / f"{name}.py" for name in texts}
    for name, text in texts.items():
        found[name].write_text(text)
    return found


def forecasts(*arguments: object) -> Any:
    result = call("forecast", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_one_candidate_gives_the_contract_document(files: dict[str, Path]) -> None:
    found = forecasts(files["reference"], files["good"], "--target", "h200", "--baseline-ms", "0.25")
    assert found["schema"] == 1 and set(found) >= FIELDS
    assert (found["baseline"], found["baseline_ms"], found["source"]) == ("eager", 0.25, "learned")
    for block in (found["latency_ms"], found["speedup"]):
        assert set(block) >= {"median", "low", "high"} and block["low"] < block["median"] < block["high"]
    assert found["speedup"]["median"] == pytest.approx(0.25 / found["latency_ms"]["median"])
    assert set(found["cost"]) == {"seconds", "tokens", "usd"} and found["cost"]["tokens"] == 0
    assert [b["low"] for b in found["bins"]][1:] == list(bins.EDGES) and found["bins"][-1]["high"] is None
    assert sum(b["p"] for b in found["bins"]) == pytest.approx(1)
    above = sum(b["p"] for b in found["bins"] if b["low"] >= 1)
    assert found["p_faster"] == pytest.approx(above, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h200", "H200"),
        ("NVIDIA H200", "H200"),
        ("nvidia a100-sxm4-80gb", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("H100 PCIe", "H100"),
    ],
)
def test_a_gpu_goes_by_its_key_and_by_its_drivers_name(name: str, key: str, files: dict[str, Path]) -> None:
    found = forecasts(files["reference"], files["good"], "--target", name, "--baseline-ms", "0.25")
    assert found["target"] == key


@pytest.mark.parametrize(
    ("name", "meant"),
    [("H2000", "H200"), ("XH200", "H200"), ("GH200", "H200"), ("NVIDIA H10O0", "H100"), ("RTX 4090", ""), ("", "")],
)
def test_a_name_that_only_contains_a_known_gpu_is_refused(name: str, meant: str, files: dict[str, Path]) -> None:
    error = call("forecast", files["reference"], files["good"], "--target", name).exception
    assert isinstance(error, UsageError)
    hint = f"; did you mean {meant}?" if meant else ""
    assert str(error) == f"unknown GPU {name!r}: known are h200, h100, a100, b200{hint}"


@pytest.mark.parametrize(
    "text", ["x = 1\n", "def build():\n    class ModelNew: ...\n", ""], ids=["none", "hidden", "empty"]
)
def test_a_file_without_a_model_is_a_mistake_and_nothing_is_forecast(text: str, files: dict[str, Path]) -> None:
    files["good"].write_text(text)
    result = call("forecast", files["reference"], files["eager"], files["good"], "--target", "h200")
    assert isinstance(result.exception, CandidateError) and result.exception.exit_code == 2
    assert str(result.exception) == f"{files['good']}: the file defines no `class ModelNew(nn.Module)`"
    assert not result.stdout


@pytest.mark.parametrize(
    "text",
    [
        "from a import ModelNew",
        "from a import *",
        "try:\n    ModelNew = B\nexcept Exception: ...",
        "import a as ModelNew",
    ],
)
def test_a_model_may_be_bound_otherwise_than_by_a_class(text: str) -> None:
    check_defines_model(text, "k.py")


def test_several_candidates_give_a_list_in_their_order(files: dict[str, Path]) -> None:
    found = forecasts(files["reference"], files["good"], files["eager"], "--target", "h200", "--baseline-ms", "0.25")
    assert [item["candidate"] for item in found] == ["good", "eager"]
    assert found[0]["latency_ms"]["median"] < found[1]["latency_ms"]["median"]


def test_a_baseline_that_nobody_measured_is_called_a_forecast(files: dict[str, Path]) -> None:
    result = call("forecast", files["reference"], files["good"], "--target", "H200", "--json")
    found = json.loads(result.stdout)
    assert found["baseline"] == "eager (forecast)" and found["baseline_ms"] > 0
    assert "was not measured" in result.stderr


def test_a_recorded_baseline_counts_only_for_its_own_gpu(tmp_path: Path) -> None:
    place = corpus(tmp_path) / "scale"
    kernel = place / "candidates" / "a.py"
    assert forecasts(place, kernel)["baseline_ms"] == 0.25
    other = forecasts(place, kernel, "--target", "h100")
    assert other["baseline"] == "eager (forecast)" and other["abstain"] and "h100" in other["why"]


def test_people_get_lines(files: dict[str, Path]) -> None:
    result = call("forecast", files["reference"], files["good"], "--target", "h200", "--baseline-ms", "0.25")
    assert "x eager" in result.stdout and "faster with" in result.stdout and not result.stdout.startswith("{")


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (["--target", "voodoo2"], "known are h200"),
        (["--target", "h200", "--forecaster", "llm"], "--model"),
        (["--target", "h200", "--forecaster", "oracle"], "roofline"),
        (["--target", "h200", "--weights", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_what_cannot_be_used_is_named(files: dict[str, Path], extra: list[str], named: str) -> None:
    result = call("forecast", files["reference"], files["good"], *extra)
    assert isinstance(result.exception, UsageError) or result.exit_code == 2
    assert named in f"{result.exception} {result.output}"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ('"num_warps": 5', "num_warps=5, and Triton takes powers of two from 1 to 32"),
        ('"num_warps": 0', "num_warps=0"),
        ('"num_warps": 64', "num_warps=64"),
        ('"num_warps": "a"', "num_warps='a'"),
        ('"num_warps": 8, "BLOCK": 5000', "a tile of 5000 elements"),
    ],
)
def test_what_cannot_compile_is_forecast_to_be_refused(files: dict[str, Path], config: str, named: str) -> None:
    files["good"].write_text(KERNEL.replace('"num_warps": 8', config))
    found = forecasts(files["reference"], files["good"], "--target", "h200", "--baseline-ms", "0.25")
    assert named in found["why"] and found["p_valid"] < 0.05 and not found["abstain"]
    shown = call("forecast", files["reference"], files["good"], "--target", "h200", "--baseline-ms", "0.25").stdout
    assert "if valid, valid with 2%" in shown and named in shown


def test_config_outside_of_space_is_told(files: dict[str, Path]) -> None:
    files["good"].write_text(KERNEL.replace("\n\n@triton.jit", '\nSPACE = {"BLOCK": [512, 1024]}\n\n@triton.jit', 1))
    for command in (["forecast", "--target", "h200"], ["optimize", "--dry-run", "--device", "cpu", "--kernel"]):
        arguments = [files["reference"], *command[1:], files["good"]]
        said = call(command[0], *arguments)
        assert "CONFIG has BLOCK=2048, which is not among SPACE's 512, 1024" in said.output + said.stderr, command


def test_study_says_what_the_forecasts_could_see(tmp_path: Path) -> None:
    result = call("study", corpus(tmp_path), "--seeds", "2", "--json")
    assert json.loads(result.stdout)["problems"] == ["scale"]
    assert "5 variants of 1 problem(s): 0 with compile-time evidence, 0 with recorded kernels" in result.stderr


def test_options_that_contradict_one_another(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    for extra in (["--recorded-only", "--collect"], ["--save-evidence", "x.jsonl"]):
        result = call("study", folder, *extra)
        assert isinstance(result.exception, UsageError)


def test_eval_of_a_small_corpus(tmp_path: Path) -> None:
    result = call("forecaster", "eval", corpus(tmp_path), "--seeds", "2", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) >= {"problems", "forecaster", "recovery", "selection", "reliability", "risk_coverage"}
    assert document["recovery"]["oracle"]["mean"] == 1


def test_fit_says_when_there_is_nothing_or_too_little(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    for arguments, named in (
        (["--output", tmp_path / "w.npz"], "nothing measured"),
        ([corpus(tmp_path)], "at least 3"),
    ):
        result = call("forecaster", "fit", *arguments)
        assert isinstance(result.exception, UsageError) and named in str(result.exception)


class _Refusing:
    asked = 0

    def run(self, args: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        raise EnvironmentFailure("no compiler here")

    def close(self) -> None: ...


def test_where_nothing_can_be_compiled_the_study_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    with EvidenceCollector(None, runners=[_Refusing()]) as collector:
        found = collect(load_corpus(corpus(tmp_path)), collector, {}, said.append)
    assert not found and "no compiler here" in said[0] and "5 variants" in said[0]


def test_collected_evidence_is_written_and_read_alike(tmp_path: Path) -> None:
    key, document = next(iter(shipped_evidence().items()))
    for name in ("e.jsonl", "e.jsonl.gz"):
        write_evidence({key: document}, tmp_path / name)
        assert read_evidence(tmp_path / name) == {key: document}


def test_shipped_evidence_covers_the_shared_corpus(shared_dir: Path) -> None:
    known = shipped_evidence()
    rows = [
        (r.problem.sha256, r.variant(row).sha256) in known for r in load_corpus(shared_dir / "corpus") for row in r.rows
    ]
    assert sum(rows) / len(rows) > 0.99


@pytest.mark.parametrize(("setting", "asked"), [("auto", False), ("never", False), ("always", True)])
def test_a_record_is_replayed_without_a_compiler_unless_asked(setting: str, asked: bool) -> None:
    engine = Engine(make_request(settings=Settings(evidence=setting)), make=making(Scripted([])))  # type: ignore[arg-type]
    try:
        assert (engine._evidence(engine.parts.device.sandbox.device) is not None) is asked
    finally:
        engine.close()


def test_a_machine_without_a_compiler_is_asked_a_few_times_only() -> None:
    refusing = _Refusing()
    with EvidenceCollector(None, runners=[refusing]) as collector:
        provide = evidence_provider(collector, make_request(), "h200")
        assert [provide(SLOW) for _ in range(6)] == [None] * 6
    assert refusing.asked == EVIDENCE_FAILURES
