"""``optimize``, ``runs``, ``show`` and ``report`` as commands: documents, lines, exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loop_parts import KERNEL, KNOWN, OTHER, TINY

from tilecast.agent import devices
from tilecast.agent.config import home
from tilecast.agent.devices import visible_gpus
from tilecast.agent.engine import open_record
from tilecast.agent.machine import Gpu
from tilecast.sandbox.schema import OptimizeResult

REPLAY = f"replay:{TINY}"
PLAIN = ["optimize", str(TINY), "--device", REPLAY, "--forecaster", "none"]


@dataclass
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


Cli = Callable[..., Said]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    from tilecast.agent.cli.app import main

    monkeypatch.setattr(devices, "_preflight_on_cpu", lambda known: lambda problem, progress: KNOWN)
    monkeypatch.setattr(devices, "gpus", lambda: ())
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["tilecast", *arguments])
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run


def failing_corpus(folder: Path, statuses: tuple[str, ...] = ("TIMEOUT", "INCORRECT_NUMERICAL")) -> Path:
    """The small problem with only those rows that have these statuses."""
    place = folder / "scale"
    (place / "candidates").mkdir(parents=True)
    for file in ("reference.py", "candidates/other.py", "candidates/slow.py", "candidates/wrong.py", "kernel.py"):
        (place / file).write_text((TINY / file).read_text())
    (place / "kernel.py").rename(place / "candidates" / "kernel.py")
    rows = [json.loads(line) for line in (TINY / "measurements.jsonl").read_text().splitlines()]
    kept = [row for row in rows if row["status"] in ("BASELINE", *statuses)]
    (place / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    return place


def test_builtin_on_recorded_measurements_finds_the_fastest_point(cli: Cli, tmp_path: Path) -> None:
    said = cli(*PLAIN, "--max-evals", "40", "--json", "--output", str(tmp_path / "fast.py"))
    assert said.code == 0
    result = OptimizeResult.model_validate(said.document)
    assert result.best is not None and result.best.recorded and result.improved
    # The kernel's own fastest point; `other` is another kernel, which builtin does not turn.
    assert result.best.latency_ms.candidate <= 0.55
    assert re.fullmatch(r"1\.\d+x \[1\S+, \S+\] the speed of the kernel it began with \(combined .*\)", result.notes[0])
    assert Path(result.best.path) == tmp_path / "fast.py"
    assert KERNEL.with_config({}).source.splitlines()[0] in (tmp_path / "fast.py").read_text()
    assert said.document["schema"] == 1
    assert "[best]" in said.err and "(recorded)" in said.err and "\x1b" not in said.err


def test_recorded_candidates_are_proposed_in_a_seeded_order(cli: Cli) -> None:
    arguments = [*PLAIN, "--model", REPLAY, "--max-evals", "12", "--json"]
    one, again, other = (cli(*arguments, "--seed", seed).document for seed in ("1", "1", "2"))
    same = ("best", "improved", "candidates", "stopped_by")
    for document in (one, again, other):
        document["best"].pop("path")
    assert [one[key] for key in same] == [again[key] for key in same]
    first = open_record(None, home())
    orders = [
        [c.sha256 for c in first.open(d["run"], lambda: 0.0).state.candidates.values()] for d in (one, again, other)
    ]
    assert orders[0] == orders[1] != orders[2]


def test_all_recorded_candidates_and_no_more(cli: Cli) -> None:
    said = cli(*PLAIN, "--model", REPLAY, "--max-evals", "100", "--json")
    assert said.document["stopped_by"] == "exhausted"
    assert said.document["ledger"]["evals"]["spent"] == 67
    assert said.document["best"]["source_sha256"] == OTHER.sha256


def test_nothing_measured_is_exit_1_and_one_line_why(cli: Cli, tmp_path: Path) -> None:
    place = failing_corpus(tmp_path)
    said = cli(
        "optimize",
        str(place),
        "--model",
        f"replay:{place}",
        "--device",
        f"replay:{place}",
        "--forecaster",
        "none",
        "--json",
    )
    assert said.code == 1
    assert said.document["best"] is None and said.document["improved"] is False
    last = said.err.strip().splitlines()[-1]
    assert last.startswith("nothing could be measured: ") and "1 TIMEOUT" in last and "1 INCORRECT_NUMERICAL" in last


def test_a_dry_run_says_what_the_budget_buys_and_starts_nothing(cli: Cli) -> None:
    said = cli(*PLAIN, "--max-gpu-seconds", "10", "--dry-run")
    assert said.code == 0
    assert "the budget buys about 19 candidates, limited by --max-gpu-seconds" in said.out
    assert open_record(None, home()).runs() == []
    document = cli(*PLAIN, "--max-gpu-seconds", "10", "--dry-run", "--json").document
    assert (document["candidates"], document["limited_by"]) == (19, "gpu_seconds")


def test_a_budget_for_fewer_than_three_is_refused_unless_yes(cli: Cli) -> None:
    said = cli(*PLAIN, "--max-evals", "2")
    assert said.code == 2
    assert "the budget buys 2 candidate(s), fewer than 3, limited by --max-evals" in said.err
    assert open_record(None, home()).runs() == []
    assert cli(*PLAIN, "--max-evals", "2", "--yes").code == 0


def test_without_any_limit_one_is_chosen_and_said(cli: Cli) -> None:
    said = cli(*PLAIN, "--json")
    assert "budget: no limit was given; 40 evaluations" in said.err
    assert said.document["ledger"]["evals"] == {"spent": 40, "limit": 40}


def test_dollars_are_refused_where_the_price_is_unknown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    said = cli(*PLAIN, "--model", "some-model", "--max-usd", "1")
    assert said.code == 2 and "the price of some-model is unknown" in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["optimize"], 2, "name a PROBLEM"),
        (["optimize", "nowhere.py"], 2, "nowhere.py: no such file"),
        ([*PLAIN, "--device", "ray:head"], 2, "'head' is no address of a Ray cluster"),
        ([*PLAIN, "--device", "bundle:"], 2, "--device bundle:"),
        ([*PLAIN, "--device", "tpu"], 2, "--device 'tpu' is not known"),
        ([*PLAIN, "--device", "cpu", "--language", "triton"], 3, "no GPU here to time triton kernels"),
        ([*PLAIN, "--device", "cuda"], 3, "there is no such CUDA GPU on this machine"),
        ([*PLAIN, "--device", "cuda:x"], 2, "GPU's number"),
        ([*PLAIN, "--device", "replay:nowhere"], 2, "'nowhere' is not a folder"),
        ([*PLAIN, "--model", "gpt-5"], 2, "OPENAI_API_KEY is not set"),
        ([*PLAIN, "--forecaster", "tarot"], 2, "unknown forecaster 'tarot'"),
        ([*PLAIN, "--language", "cobol"], 2, "unknown language 'cobol'"),
        ([*PLAIN, "--strategy", "agent"], 2, "--strategy agent"),
        ([*PLAIN, "--patience", "0"], 2, "patience"),
        ([*PLAIN, "--target-speedup", "-1"], 2, "--target-speedup"),
        ([*PLAIN, "--resume", "none-such"], 2, "no run 'none-such'"),
        (["show", "last"], 2, "no run 'last'"),
        (["report", "last", "--format", "pdf"], 2, "--format pdf"),
    ],
)
def test_a_mistake_is_one_line_and_its_exit_code(cli: Cli, arguments: list[str], code: int, words: str) -> None:
    said = cli(*arguments)
    assert said.code == code
    assert words in re.sub(r"\s+", " ", said.err)
    assert "Traceback" not in said.err and said.out == ""


def test_auto_takes_what_is_recorded_beside_the_problem_and_says_so(cli: Cli) -> None:
    said = cli("optimize", str(TINY), "--forecaster", "none", "--max-evals", "3", "--json")
    assert "auto found no CUDA GPU and takes the measurements recorded in" in said.err
    assert said.document["best"]["recorded"] is True


def test_show_runs_and_report_tell_the_whole_story(cli: Cli, tmp_path: Path) -> None:
    run = cli(*PLAIN, "--model", REPLAY, "--max-evals", "100", "--json").document["run"]
    listed = cli("runs", "--json").document["runs"]
    assert [(r["run"], r["status"], r["evals"]) for r in listed] == [(run, "exhausted", 67)]
    assert run in cli("runs").out
    shown = cli("show", "last")
    assert f"run {run}: scale on NVIDIA H200 (recorded)" in shown.out
    best = cli("show", run, "best", "--json").document
    assert best["candidate"]["best"] and best["source"] == OTHER.source
    assert cli("show", run, "best", "--source").out == OTHER.source
    one = cli("show", run, "best").out
    assert "best of the run: " in one and "0.45 ms (recorded)" in one
    rejected = next(i for i, c in enumerate(cli("show", run, "--json").document["candidates"]) if c["name"] == "wrong")
    assert "INCORRECT_NUMERICAL: relative L2 error 0.5" in cli("show", run, str(rejected)).out
    assert cli("show", run, "9999").code == 2
    file = tmp_path / "report.md"
    assert cli("report", run, "--output", str(file)).code == 0
    assert "**recorded** on NVIDIA H200" in file.read_text()
    assert cli("report", run, "--json").document["counts"]["rejected"] == 6


def test_a_difference_says_between_which_candidates_it_is(cli: Cli) -> None:
    run = cli(*PLAIN, "--max-evals", "3", "--json").document["run"]
    shown = cli("show", run, "1").out
    assert "difference from candidate 0 (start), which it was built on:" in shown
    assert "--- candidate 0 (start)\n+++ candidate 1\n" in shown
    assert cli("show", run, "1", "--json").document["diff_against"] == "candidate 0 (start)"
    first = cli("show", run, "0", "--json").document
    assert (first["diff"], first["diff_against"]) == ("", "nothing: a fresh start")
    assert "difference from" not in cli("show", run, "0").out


def test_a_run_with_more_budget_goes_on_where_it_stopped(cli: Cli) -> None:
    first = cli(*PLAIN, "--max-evals", "5", "--json").document
    second = cli("optimize", "--resume", first["run"], "--max-evals", "9", "--json")
    assert second.document["run"] == first["run"]
    assert second.document["ledger"]["evals"] == {"spent": 9, "limit": 9}
    straight = cli(*PLAIN, "--max-evals", "9", "--json").document
    assert second.document["best"]["source_sha256"] == straight["best"]["source_sha256"]
    assert second.document["candidates"] == straight["candidates"]


def test_the_run_folder_can_be_elsewhere_and_names_the_run(cli: Cli, tmp_path: Path) -> None:
    document = cli(*PLAIN, "--max-evals", "3", "--run-dir", str(tmp_path / "runs here"), "--json").document
    assert Path(document["run_dir"]) == tmp_path / "runs here" / document["run"]
    assert cli("show", document["run_dir"], "--json").document["run"] == document["run"]


def gpu(index: int) -> Gpu:
    return Gpu(
        index=index, name="NVIDIA H200", uuid=f"GPU-{index}ab", driver="1", memory_mib=1, compute_capability="9.0"
    )


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [0, 1, 2]), ("", []), ("-1", []), ("2,0", [2, 0]), ("GPU-1a", [1]), ("1,7,0", [1]), (" 1 , 2", [1, 2])],
)
def test_gpus_are_counted_as_cuda_counts_them(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: tuple(map(gpu, range(3))))
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [g.index for g in visible_gpus(environ)] == expected


def test_on_a_terminal_of_80_columns_the_run_is_a_live_picture() -> None:
    pexpect = pytest.importorskip("pexpect")
    here = Path(__file__).parent
    environment = {**os.environ, "LOOP_HOLD_S": "0.2", "TERM": "xterm", "PYTHONPATH": str(here)}
    child = pexpect.spawn(
        sys.executable,
        [str(here / "loop_parts.py"), *PLAIN, "--max-evals", "8", "--max-gpu-seconds", "50"],
        env=environment,
        dimensions=(30, 80),
        encoding="utf-8",
        timeout=60,
    )
    for words in ("tilecast", "evals", "of 8", "device s", "of 50", "now", "written to", "spent: evals 8 of 8"):
        child.expect(words)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
