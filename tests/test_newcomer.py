"""What somebody meets who tries tilecast for the first time: words that help, in the order in which they help."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from loop_parts import TINY, Scripted, make_request, making, variant
from test_cli import tilecast

from tilecast.agent.ci.expecting import Expectation
from tilecast.agent.ci.run import _expected
from tilecast.agent.ci.schema import ForecastNote
from tilecast.agent.cli.view import LiveView, PlainView, baseline_line, decision_line
from tilecast.agent.config import resolve
from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Finished
from tilecast.agent.request import STRATEGIES
from tilecast.sandbox.base import BaselineTimes
from tilecast.sandbox.cluster.sandbox import merged
from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.languages import LANGUAGES
from tilecast.tools.forecast.factory import NAMES

SOFTMAX = Path(__file__).parents[1] / "examples" / "softmax"


def only_candidate(block: int, warps: int):  # type: ignore[no-untyped-def]
    result = Engine(make_request(), make=making(Scripted([variant(block, warps)]))).run()
    log = open_record(None, make_request().home).open(result.run, lambda: 0.0)
    return log.state.candidates[0]


def test_the_fastest_so_far_is_not_called_best_where_it_is_slower_than_the_baseline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The baseline of the small record takes 0.8 ms; (64, 1) takes 0.9 and (256, 2) takes 0.5.
    slower, faster = only_candidate(64, 1), only_candidate(256, 2)
    assert decision_line(slower).startswith("[best so far, slower than baseline] 0 ")
    assert decision_line(faster).startswith("[best] 0 ")
    PlainView()(Finished(slower))
    assert "[best so far, slower than baseline]" in capsys.readouterr().err


def test_the_live_picture_says_so_too() -> None:
    from rich.console import Console

    console = Console(width=160, record=True, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
    view = LiveView(console)
    view(Finished(only_candidate(64, 1)))
    view.close()
    console.print(view._picture())
    shown = console.export_text()
    assert "best so far, slower than baseline" in shown and "lead" in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[[kernel]]\nproblem = "a"\ntreshold = 0.1\n',
            "unknown key 'kernel.0.treshold' in [[kernel]]; known are problem, candidate, name, threshold, budget, paths; "
            "did you mean 'threshold'?",
        ),
        ('[[kernel]]\nproblem = "a"\n[kernel.budget]\nmax_eval = 1\n', "max_eval' in [budget]; known are max_evals"),
        ("[ci]\nfail = true\n", "unknown key 'ci.fail' in [ci]; known are threshold, fail_on"),
        ("[chat]\nround = 1\n", "did you mean 'rounds'?"),
        ('modle = "x"\n', "did you mean 'model'?"),
    ],
)
def test_an_unknown_key_is_told_the_keys_of_its_own_table(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "tilecast.toml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)):
        resolve(cwd=tmp_path, environ={})


def test_an_unknown_command_is_told_the_nearest() -> None:
    run = tilecast("verfy")
    assert run.returncode == 2 and "Did you mean 'verify'?" in run.stderr and "Traceback" not in run.stderr
    assert "There are optimize" in re.sub(r"\s+", " ", tilecast("qqqq").stderr)


def test_help_names_the_values_of_options_that_have_few() -> None:
    from typer.main import get_command

    from tilecast.agent.cli.app import app

    command = get_command(app).get_command(None, "optimize")  # type: ignore[attr-defined,arg-type]
    metavars = {option.name: option.metavar or "" for option in command.params}
    for name, values in (("strategy", STRATEGIES), ("language", LANGUAGES), ("forecaster", NAMES)):
        assert set(metavars[name].strip("[]").split("|")) == set(values)


@pytest.mark.parametrize("name", ["optimize", "verify", "bench", "tune", "lint", "chat", "mcp"])
def test_help_names_every_form_of_a_device(name: str) -> None:
    from typer.main import get_command

    from tilecast.agent.cli.app import app
    from tilecast.agent.devices import FORMS

    command = get_command(app).get_command(None, name)  # type: ignore[attr-defined,arg-type]
    told = next(option.help for option in command.params if option.name == "device")
    assert [form for form in FORMS.split(", ") if form not in told] == []


def test_baselines_that_an_earlier_run_timed_are_not_shown_as_timed_now() -> None:
    now = BaselineTimes(times_ms={"eager": 2.0, "compile": 1.0}, fastest="compile", seconds=3.0)
    kept = now.model_copy(update={"seconds": 0.0, "kept": True})
    told = "baseline compile: compile 1 ms, eager 2 ms"
    assert baseline_line(now) == told
    assert baseline_line(kept) == f"{told} (kept from an earlier run; each candidate is timed against compile anew)"
    # Of several evaluators one had them kept: the medians hold new times, too.
    assert baseline_line(merged([("a", now), ("b", kept)])) == told
    assert "kept from an earlier run" in baseline_line(merged([("a", kept), ("b", kept)]))


@pytest.fixture
def unrecorded(tmp_path: Path) -> Path:
    """The small problem with a Triton kernel and no measurements, as on a laptop."""
    folder = tmp_path / "scale"
    folder.mkdir()
    shutil.copy(TINY / "reference.py", folder)
    return folder


TRITON = (
    "import torch\nimport triton\nimport triton.language as tl\nCONFIG = {'b': 64}\nSPACE = {'b': [64, 128]}\n\n\n"
    "@triton.jit\ndef k(x):\n    pass\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    "        k[(1,)](x)\n        return x\n"
)


def test_without_a_gpu_that_is_said_first(unrecorded: Path) -> None:
    bare = tilecast("optimize", unrecorded, "--device", "cpu")
    assert bare.returncode == 2 and bare.stderr.startswith("error: there is no GPU here")
    assert "builtin has nothing to propose" in bare.stderr
    (unrecorded / "kernel.py").write_text(TRITON.replace("CONFIG = {'b': 64}\nSPACE = {'b': [64, 128]}\n", ""))
    fixed = tilecast("optimize", unrecorded, "--device", "cpu")
    assert fixed.returncode == 3 and "there is no GPU here to time triton kernels on" in fixed.stderr
    assert "nothing to propose" not in fixed.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda:63"])
def test_a_dry_run_without_a_gpu_plans_and_names_what_is_missing(unrecorded: Path, device: str) -> None:
    (unrecorded / "kernel.py").write_text(TRITON)
    run = tilecast("optimize", unrecorded, "--dry-run", "--max-evals", "5", "--yes", "--device", device)
    assert run.returncode == 0, run.stderr
    assert "the budget buys about 2 candidates" in run.stdout and "nothing was started" in run.stdout
    assert "missing here: " in run.stdout and "basis: evaluation time assumed" in run.stdout
    document = json.loads(tilecast("optimize", unrecorded, "--dry-run", "--yes", "--device", device, "--json").stdout)
    assert document["dry_run"] is True and "GPU" in document["missing"][0]


def test_ci_without_a_target_does_not_speak_of_a_forecast() -> None:
    nothing = Expectation(ForecastNote(abstains=True, target=""))
    assert _expected(nothing, 0.03) == (
        "undecided",
        "none",
        "there is no GPU here, and none is named to forecast for (--target)",
    )


def test_lint_and_preflight_say_how_far_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "relu"
    folder.mkdir()
    from test_cli import REFERENCE

    text = REFERENCE.replace("{tail}", "").replace('{"small": {"n": 33}}', '{"small": {"n": 33}, "small_b": {"n": 17}}')
    (folder / "reference.py").write_text(text)
    run = tilecast("lint", folder)
    assert run.returncode == 0, run.stderr
    assert "studying workload 1 of 2, small\n" in run.stderr and "studying workload 2 of 2, small_b\n" in run.stderr
    assert re.search(r"wrong answers on workload 1 of 2, small: input family 1 of \d+", run.stderr)


@pytest.mark.parametrize(
    ("output", "told"), [("nowhere/best.py", "there is no folder"), (".", "is a folder; name a file in it")]
)
@pytest.mark.parametrize("command", ["optimize", "tune"])
def test_a_place_for_the_winner_that_cannot_be_written_is_told_before_anything_is_spent(
    command: str, output: str, told: str, tmp_path: Path
) -> None:
    run = tilecast(command, SOFTMAX, "--max-evals", "3", "--output", tmp_path / output)
    assert (run.returncode, told in run.stderr) == (2, True), run.stderr
    assert "begun" not in run.stderr and "Traceback" not in run.stderr


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILECAST_HOME", str(tmp_path / "file"))
    run = tilecast("verify", SOFTMAX, SOFTMAX / "kernel.py", "--device", "cpu")
    assert run.returncode == 3 and "set TILECAST_HOME" in run.stderr and "Traceback" not in run.stderr


def test_a_kernel_with_a_null_byte_is_a_mistake_like_any_other(tmp_path: Path) -> None:
    kernel = tmp_path / "null.py"
    kernel.write_text("CONFIG = {'A': 1}\0\n")
    run = tilecast("optimize", SOFTMAX, "--kernel", kernel, "--max-evals", "3")
    assert run.returncode == 2 and "the kernel does not parse" in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize("command", ["optimize", "tune"])
def test_a_kernel_that_does_not_parse_is_told_with_its_line(command: str, tmp_path: Path) -> None:
    kernel = tmp_path / "broken.py"
    kernel.write_text("CONFIG = {'A': 1}\ndef f(:\n")
    more = ["--kernel", kernel] if command == "optimize" else [kernel]
    run = tilecast(command, SOFTMAX, *more, "--max-evals", "3")
    assert run.returncode == 2 and "broken.py:2: the kernel does not parse" in run.stderr, run.stderr


def test_an_edited_kernel_that_is_not_recorded_is_told_what_to_do(tmp_path: Path) -> None:
    edited = tmp_path / "edited.py"
    edited.write_text((SOFTMAX / "kernel.py").read_text() + "\nEDITED = 1\n")
    run = tilecast("verify", SOFTMAX, edited, "--device", f"replay:{SOFTMAX}")
    assert run.returncode == 1 and "--device cpu checks it" in run.stdout + run.stderr
