"""The command line as programs and people meet it: start-up, exit codes, one JSON document, errors of one line."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from tilecast.agent.cli.app import COMMANDS, app
from tilecast.sandbox.errors import UsageError

REFERENCE = """
import torch
import torch.nn as nn

WORKLOADS = {"small": {"n": 33}}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x){tail}


def get_inputs(n=64):
    return [torch.randn(4, n)]


def get_init_inputs():
    return []
"""
RIGHT = "import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x.clamp(min=0)\n"
WRONG = RIGHT.replace("x.clamp(min=0)", "x.abs()")


def tilecast(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.argv[0] = 'tilecast'; from tilecast.agent.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=110,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
    )


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    folder = tmp_path / "relu"
    folder.mkdir()
    (folder / "reference.py").write_text(REFERENCE.replace("{tail}", ""))
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(WRONG)
    (folder / "broken.py").write_text("class ModelNew(:\n")
    return folder


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['tilecast', '--help']\n"
        "from tilecast.agent.cli.app import app\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'triton', 'langgraph', 'openai', 'sqlalchemy', 'pydantic', 'numpy', 'lightgbm', 'sklearn'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in run.stdout
    for name in COMMANDS:
        assert name in run.stdout


def test_version_and_unknown_command() -> None:
    assert tilecast("--version").stdout.startswith("tilecast ")
    unknown = tilecast("optimise")
    assert unknown.returncode == 2
    assert "Traceback" not in unknown.stderr


@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "forecaster"])
def test_an_option_whose_metavar_is_its_own_name_is_named(name: str) -> None:
    """Typer 0.27 takes the metavar for the name then, and the option is gone."""
    module, attribute = COMMANDS[name]
    function = getattr(importlib.import_module(module), attribute)
    for parameter, hint in get_type_hints(function, include_extras=True).items():
        for option in _options(hint):
            if (option.metavar or "").lower() == parameter:
                # Inside Annotated the first name stands where a default would.
                assert option.param_decls or option.default not in (..., None), f"{name}: --{parameter}"
    assert (inspect.getdoc(function) or "").count("Example") >= 1 or name in ("report", "show")


def _options(hint: Any) -> list[Any]:
    if get_origin(hint) is not Annotated:
        return []
    return [item for item in get_args(hint)[1:] if isinstance(item, type(typer.Option()))]


def test_verify_says_yes_and_no(problem: Path) -> None:
    run = tilecast("verify", problem, problem / "right.py", problem / "wrong.py", "--device", "cpu", "--json")
    assert run.returncode == 1, run.stderr
    right, wrong = json.loads(run.stdout)
    assert (right["status"], right["schema"], right["candidate"]) == ("PASSED", 1, "right")
    assert wrong["status"] == "INCORRECT_NUMERICAL"
    assert "expected" in wrong["reason"]
    alone = tilecast("verify", problem, problem / "right.py", "--device", "cpu", "--json")
    assert alone.returncode == 0
    assert json.loads(alone.stdout)["source_sha256"] == right["source_sha256"]


def test_bench_measures_against_a_file(problem: Path) -> None:
    run = tilecast(
        "bench", problem, problem / "right.py", "--device", "cpu", "--baseline", problem / "right.py",
        "--max-seconds", "2", "--json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert document["status"] == "PASSED"
    assert document["recorded"] is False
    assert document["speedup"]["low"] <= document["speedup"]["ratio"] <= document["speedup"]["high"]


def test_a_refused_problem_is_exit_2_and_still_a_document(problem: Path) -> None:
    (problem / "reference.py").write_text(REFERENCE.replace("{tail}", " * 0"))
    run = tilecast("verify", problem, problem / "right.py", "--device", "cpu", "--json")
    assert run.returncode == 2
    assert json.loads(run.stdout)["status"] == "INVALID_REFERENCE"
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["verify", "nothing.py", "right.py"], 2, "no such file"),
        (["verify", ".", "gone.py"], 2, "gone.py"),
        (["verify", ".", "right.py", "--device", "tpu"], 2, "'tpu' is not known"),
        (["verify", ".", "right.py", "--device", "cuda:99"], 3, "cuda:99"),
        (["bench", ".", "right.py", "--baseline", "fast.py"], 2, "fast.py: no such file"),
        (["forecast", ".", "broken.py", "--target", "H200"], 2, "broken.py:1: does not parse"),
        (["verify", ".", "right.py", "--timeout", "inf"], 2, "--timeout inf: "),
        (["bench", ".", "right.py", "--device", "cpu", "--workload", "huge"], 2, "there are small, full"),
        (["optimize", ".", "--max-minutes", "inf"], 2, "--max-minutes inf: "),
        (["optimize", ".", "--max-usd", "-1"], 2, "--max-usd -1.0: "),
        (["optimize", ".", "--target-speedup", "nan"], 2, "--target-speedup nan: must be a number above 0"),
        (["optimize", ".", "--target", "H900"], 2, "unknown GPU 'H900'"),
        (["show", ""], 2, "no run ''"),
    ],
)
def test_a_mistake_is_one_line(problem: Path, arguments: list[str], code: int, says: str) -> None:
    run = tilecast(*arguments, cwd=problem)
    assert run.returncode == code, run.stderr
    assert says in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stderr.strip().splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "wrong", "meant"),
    [
        (["verify", "rleu", "relu/right.py"], "rleu", "relu"),
        (["verify", "relu/refrence.py", "relu/right.py"], "relu/refrence.py", "relu/reference.py"),
        (["verify", "relu", "relu/rihgt.py"], "relu/rihgt.py", "relu/right.py"),
        (["bench", "relu", "Rellu/right.py"], "Rellu/right.py", "relu/right.py"),
        (["bench", "relu", "relu/right.py", "--baseline", "relu/wrnog.py"], "relu/wrnog.py", "relu/wrong.py"),
        (["forecast", "relu", "rellu/gone.py"], "rellu/gone.py", ""),
        (["optimize", "relu", "--kernel", "relu/other.py"], "relu/other.py", ""),
        (["optimize", "/relu/none"], "/relu/none", ""),
    ],
)
def test_a_path_that_is_not_there_is_told_with_the_nearest_one_that_is(
    problem: Path, arguments: list[str], wrong: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(problem.parent)
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, UsageError)
    assert str(error) == f"{wrong}: no such file" + (f"; did you mean {meant}?" if meant else "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["forecast", ".", "right.py", "--target", "h200", "--baseline-ms"],
        ["bench", ".", "right.py", "--device", "cpu", "--max-seconds"],
        ["runs", "--limit"],
        ["worker", ".", "--device", "cpu", "--once", "--wait"],
        ["worker", ".", "--device", "cpu", "--once", "--for"],
        ["study", ".", "--seeds"],
    ],
)
@pytest.mark.parametrize("value", ["nan", "-1", "1e400", "x"])
def test_a_number_that_makes_no_sense_is_refused_with_its_flag(
    problem: Path, arguments: list[str], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(problem)
    if value == "1e400" and arguments[0] == "worker":
        return  # endless: that is what a worker does
    done = CliRunner().invoke(app, [*arguments, value])
    assert done.exit_code == 2, done.output
    assert arguments[-1] in done.output


@pytest.mark.parametrize("command", ["verify", "bench", "forecast"])
@pytest.mark.parametrize(("named", "first"), [("relu", "kernel.py"), ("relu/reference.py", "kernel_b.py")])
def test_a_problem_without_a_kernel_is_told_the_one_that_lies_there(
    problem: Path, command: str, named: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(problem.parent)
    monkeypatch.setenv("COLUMNS", "150")
    bare = CliRunner().invoke(app, [command, named])
    assert bare.exit_code == 2 and "Missing argument 'CANDIDATE...'." in bare.output and "too" not in bare.output
    for name in {first, "kernel_b.py", "kernel_c.py"}:
        (problem / name).write_text(RIGHT)
    done = CliRunner().invoke(app, [command, named])
    assert done.exit_code == 2
    assert f"Give the kernel too: tilecast {command} {named} relu/{first}" in done.output


def test_optimize_is_told_the_flag_for_a_kernel_given_as_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    done = CliRunner().invoke(app, ["optimize", "relu", "my kernel.py", "--max-evals", "3"])
    assert done.exit_code == 2
    assert "argument(s) (my kernel.py): give the kernel to start from as --kernel 'my kernel.py'" in done.output
    several = CliRunner().invoke(app, ["optimize", "relu", "a.py", "b.py"])
    assert several.exit_code == 2 and "--kernel" not in several.output
    other = CliRunner().invoke(app, ["lint", "relu", "a.py"])
    assert other.exit_code == 2 and "--kernel" not in other.output


def test_every_command_takes_json() -> None:
    from tilecast.agent.cli import forecaster

    functions = [getattr(importlib.import_module(m), a) for n, (m, a) in COMMANDS.items() if n != "forecaster"]
    for function in [*functions, forecaster.fit, forecaster.evaluate]:
        hints = get_type_hints(function, include_extras=True).values()
        declared = {
            name
            for hint in hints
            for option in _options(hint)
            for name in (option.default, *(option.param_decls or ()))
        }
        assert "--json" in declared, function.__name__


def test_a_list_of_no_runs_of_one_problem_says_so() -> None:
    assert "no runs of problem 'nosuch' yet" in CliRunner().invoke(app, ["runs", "--problem", "nosuch"]).stdout


def test_lint_of_a_sound_problem(problem: Path) -> None:
    run = tilecast("lint", problem, "--json")
    document = json.loads(run.stdout)
    assert document["problem"] == "relu"
    assert {"mutations", "weak", "advice"} <= document.keys()
    assert run.returncode == (1 if document["weak"] else 0)


def test_doctor_names_what_is_there_and_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    run = tilecast("doctor", "--json")
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert document["model"]["keys"] == {"OPENAI_API_KEY": "set"}
    assert "sk-not-to-be-seen" not in run.stdout + run.stderr
    assert document["sandbox"]["level"]
    assert "torch" in document["packages"]
