"""``tilecast tune``: the best CONFIG of one kernel, its gain, a table by workload; what cannot be tuned is said."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from loop_parts import KERNEL, KNOWN, TINY, make_request

from tilecast.agent import devices
from tilecast.agent.budget import Limits
from tilecast.agent.engine import Engine
from tilecast.agent.tuning import Tuned, dispatch_literal, space_size, timed_workloads, tune
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import LatencyPair, OptimizeResult
from tilecast.sandbox.source import Candidate

FASTEST = {"block": 256, "warps": 2, "stages": 1}
REPLAY = ["--device", f"replay:{TINY}", "--forecaster", "none"]


class Cli:
    """The command in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = patch, capture

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr of ``tilecast tune``."""
        from tilecast.agent.cli.app import main

        self._patch.setattr(sys, "argv", ["tilecast", "tune", *arguments])
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        said = self._capture.readouterr()
        return code, said.out, said.err


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    monkeypatch.setattr(devices, "_preflight_on_cpu", lambda known: lambda problem, progress: KNOWN)
    monkeypatch.setattr(devices, "gpus", lambda: ())
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch, capsys)


def test_the_best_configuration_of_the_record(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "tuned.py"
    code, out, _ = cli(str(TINY), str(TINY / "kernel.py"), *REPLAY, "--max-evals", "64", "--output", str(place))
    line = next(line for line in out.splitlines() if line.startswith("CONFIG = "))
    assert code == 0 and ast.literal_eval(line.removeprefix("CONFIG = ")) == FASTEST
    assert "1.80x the kernel as given" in out  # 0.9 ms as given, 0.5 ms at its best
    written = Candidate(name="tuned", source=place.read_text())
    assert written.config == FASTEST and written.sha256 == KERNEL.with_config(FASTEST).sha256


def test_the_document(cli: Cli) -> None:
    code, out, _ = cli(str(TINY), *REPLAY, "--max-evals", "64", "--json")
    document = json.loads(out)
    assert code == 0 and document["schema"] == 1
    [row] = document["workloads"]
    assert set(row) == {"workload", "config", "gain", "start_ms", "result"}
    assert (row["workload"], row["config"], row["start_ms"]) == ("full", FASTEST, 0.9)
    assert row["gain"] == pytest.approx(1.8)
    result = OptimizeResult.model_validate(row["result"])
    assert result.best is not None and result.best.latency_ms.candidate == 0.5


def test_without_a_limit_a_quarter_of_the_space_is_measured(cli: Cli) -> None:
    _, out, _ = cli(str(TINY), *REPLAY, "--json")
    ledger = json.loads(out)["workloads"][0]["result"]["ledger"]
    assert ledger["evals"] == {"spent": 16, "limit": 16}
    assert space_size(KERNEL) == 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class ModelNew:\n    pass\n", "no module-level CONFIG"),
        ('CONFIG = {"B": 1}\n\n\nclass ModelNew:\n    pass\n', "no module-level SPACE"),
    ],
)
def test_a_kernel_with_nothing_to_tune_is_a_usage_error(cli: Cli, tmp_path: Path, text: str, said: str) -> None:
    kernel = tmp_path / "plain.py"
    kernel.write_text(text)
    code, out, err = cli(str(TINY), str(kernel), *REPLAY)
    assert (code, out) == (2, "") and said in err and "SPACE = {" in err


def test_no_kernel_at_all(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "scale"
    folder.mkdir()
    (folder / "reference.py").write_text((TINY / "reference.py").read_text())
    code, _, err = cli(str(folder), *REPLAY)
    assert code == 2 and "name a KERNEL" in err


def each(limits: Limits, workloads: list[str], drive: Callable[[Engine], OptimizeResult]) -> list[Tuned]:
    return list(tune(make_request(KERNEL, limits), workloads, [], drive))


def test_more_workloads_than_evaluations() -> None:
    with pytest.raises(UsageError, match="--max-evals 2 for 3 workloads"):
        each(Limits(evals=2), ["full", "wide", "tall"], lambda engine: engine.run())


def test_workloads_share_the_evaluations() -> None:
    asked: list[tuple[str, float | None]] = []

    def drive(engine: Engine) -> OptimizeResult:
        asked.append((engine.request.options.workload, engine.request.limits.evals))
        return engine.run()

    answers = each(Limits(evals=21), ["full", "full"], drive)
    assert asked == [("full", 10), ("full", 10)]
    assert [answer.result.ledger.evals.spent for answer in answers] == [10, 10]
    assert len({answer.result.run for answer in answers}) == 2


def test_dispatch_is_a_table_of_what_the_device_can_time(cli: Cli) -> None:
    code, out, err = cli(str(TINY), *REPLAY, "--max-evals", "64", "--dispatch")
    table = ast.literal_eval(out[out.index("DISPATCH = ") :].removeprefix("DISPATCH = "))
    assert code == 0 and table == {"full": FASTEST} and "times of `full` alone" in out + err


def test_a_workload_that_is_not_recorded_is_refused(cli: Cli) -> None:
    code, _, err = cli(str(TINY), *REPLAY, "--workload", "wide")
    assert code == 2 and "'wide' is not recorded" in err


def test_a_workload_without_an_answer_has_no_line() -> None:
    [answer] = each(Limits(evals=1), ["full"], lambda engine: engine.run())
    none = Tuned("wide", answer.result.model_copy(update={"best": None}), None, 1.0, 1.0)
    assert dispatch_literal([answer, none]).splitlines() == ["DISPATCH = {", f"    'full': {KERNEL.config!r},", "}"]
    assert none.gain is None and timed_workloads(["small", "full", "small_wide", "tall"]) == ["full", "tall"]


def test_the_gain_compares_ratios_of_two_windows() -> None:
    [answer] = each(Limits(evals=1), ["full"], lambda engine: engine.run())
    assert answer.result.best is not None and answer.gain == 1.0
    ratio = answer.result.best.speedup.ratio
    # The machine slowed down to a half between the two windows, baseline and all: that is no loss.
    slower = answer.result.best.model_copy(
        update={"latency_ms": LatencyPair(candidate=2.0, baseline=2.0 * ratio)},
    )
    later = replace(answer, result=answer.result.model_copy(update={"best": slower}), start_ratio=ratio / 1.5)
    assert later.gain == pytest.approx(1.5)
