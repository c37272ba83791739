"""A run with bundles seen from outside and taken up where its results are of no use: what it says, what it asks for again."""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from bundle_parts import DEVICE, STARTED, FormulaJudge, OptimizeProcess, bundles_of, do_work, results_of, wait_for
from loop_parts import TINY
from rich.console import Console
from test_bundle_files import ask, asked, do, refusals, rewritten
from test_bundles import altered, logged, rounds
from typer.testing import CliRunner

from tilecast.agent.cli.app import app
from tilecast.agent.cli.request import build_request
from tilecast.agent.cli.view import LiveView
from tilecast.agent.config import home
from tilecast.agent.engine import Engine
from tilecast.agent.progress import Began, Progress
from tilecast.agent.record.events import Noted
from tilecast.agent.report.build import build_report
from tilecast.sandbox.base import DeviceFacts
from tilecast.sandbox.bundle import BundleSandbox
from tilecast.sandbox.harness.bundles import files, layout, worker
from tilecast.sandbox.harness.bundles.carried import harness_version
from tilecast.sandbox.harness.bundles.queue import WorkQueue
from tilecast.sandbox.problem import load_problem
from tilecast.sandbox.schema import EvaluationStatus

H200 = DeviceFacts.model_validate({**DEVICE, "kind": "bundle"})
OTHER = "f" * 64
AGAIN: dict[str, Any] = {"target_speedup": None, "patience": None, "seed": None}


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(worker, "JudgeProcess", FormulaJudge)
    monkeypatch.setattr(FormulaJudge, "asked", [])
    monkeypatch.delenv(files.KEY_VARIABLE, raising=False)
    yield FormulaJudge
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def show(*more: str) -> str:
    done = CliRunner().invoke(app, ["show", "last", *more])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def killed(tmp_path: Path) -> OptimizeProcess:
    """A run that was killed after its first results (reference, baselines, start kernel) were used."""
    run = OptimizeProcess(tmp_path / "work", home(), "--max-evals", "3")
    process = run.start()
    wait_for(lambda: bundles_of(run.folder))
    do_work(run.folder)
    wait_for(lambda: len(bundles_of(run.folder)) == 2)
    process.kill()
    process.communicate()
    return run


def taken_up(listeners: Any = ()) -> Engine:
    request, _ = build_request(None, None, None, "last", {}, AGAIN)
    return Engine(request, listeners, "last")


def test_a_run_is_taken_up_where_no_result_can_tell_its_device(killed: OptimizeProcess, monkeypatch: Any) -> None:
    monkeypatch.setenv(files.KEY_VARIABLE, "set since")
    engine = taken_up()
    engine.close()
    assert engine.parts.device.sandbox.device == H200
    monkeypatch.delenv(files.KEY_VARIABLE)
    monkeypatch.setattr("tilecast.sandbox.bundle_box.harness_version", lambda: OTHER)
    engine = taken_up()
    engine.close()
    assert engine.parts.device.sandbox.device == H200
    said = " ".join(incident.text for incident in engine.parts.device.sandbox.incidents())
    assert "2 bundle(s) of this run are for another harness version: asked for again" in said


def test_a_run_goes_on_to_its_end_when_its_folder_is_gone(killed: OptimizeProcess, tmp_path: Path) -> None:
    shutil.rmtree(killed.folder)
    killed.start("last")
    rounds(killed, tmp_path / "there")
    document, _ = killed.finish()
    assert document["ledger"]["evals"]["spent"] == 3


def test_the_picture_of_a_run_taken_up_shows_the_best_of_the_record(killed: OptimizeProcess) -> None:
    heard: list[Progress] = []
    engine = taken_up([heard.append])
    engine.interrupt()
    engine.run()
    (began,) = [event for event in heard if isinstance(event, Began)]
    assert began.resumed and began.best is not None and began.best.index == 0
    console = Console(file=io.StringIO(), width=120)
    view = LiveView(console)
    view(began)
    view.close()
    console.print(view._picture())
    assert isinstance(console.file, io.StringIO) and "nothing measured yet" not in console.file.getvalue()


def test_show_says_what_is_waited_for(killed: OptimizeProcess) -> None:
    said = show()
    assert f"2 result(s) are waited for in {killed.folder}" in said and "one of them: tilecast show" in said
    assert said.count("[waiting]") == 2 and "[drop]" not in said
    assert "waiting: not judged yet" in show("1") and "dropped" not in show("1")


def test_show_before_the_first_results_and_the_refusals_in_it(tmp_path: Path) -> None:
    run = OptimizeProcess(tmp_path / "work", home(), "--max-evals", "3")
    process = run.start()
    wait_for(lambda: bundles_of(run.folder))
    said = show()
    assert f"the first results are waited for in {run.folder}" in said and "one of them" not in said
    process.kill()
    process.communicate()
    do_work(run.folder)
    good = {path: path.read_bytes() for path in results_of(run.folder)}
    for path, blob in good.items():
        path.write_bytes(altered(blob))
    run.start("last")
    wait_for(lambda: "altered" in show())  # recorded at once, though nothing can be used yet
    said = show()
    assert said.count("warning: refused result") == len(good) == said.count("; bring it again")
    assert all("altered" in incident.text for incident in build_report(logged(home())).incidents)


def test_show_has_what_a_lost_evaluator_printed_last(killed: OptimizeProcess) -> None:
    log = logged(home())
    figures = {"worker": "gpu-1", "candidate": "", "log": [f"line {n}" for n in range(9)], "warning": False}
    log.append(Noted(text="what the process of gpu-1 printed last", figures=figures))
    log.append(Noted(text="half of the budget", figures={"meter": "evals"}))
    said = show()
    assert "what the process of gpu-1 printed last\n  line 4\n" in said and "line 3\n" not in said
    assert "half of the budget" not in said


def test_a_result_of_another_gpu_model_is_refused_when_the_first_ones_are_gone(
    tmp_path: Path, judge: Any, monkeypatch: Any
) -> None:
    asked(tmp_path)
    monkeypatch.setattr(judge, "device", {**judge.device, "name": "NVIDIA A100"})
    do(tmp_path)
    sandbox = BundleSandbox(tmp_path, "run1", load_problem(TINY))
    sandbox.bind(H200)
    assert "measured on NVIDIA A100; this run's device is NVIDIA H200" in refusals(sandbox)
    assert sandbox.device == H200


def test_nothing_is_written_before_there_is_work(tmp_path: Path) -> None:
    BundleSandbox(tmp_path / "work", "run1", load_problem(TINY))
    command = ["optimize", str(TINY), "--device", f"bundle:{tmp_path / 'work'}", "--dry-run", "--forecaster", "none"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and not (tmp_path / "work").exists()


def test_a_worker_that_refused_says_so_last_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert do(tmp_path / "empty")[-1] == f"0 item(s) done, there are no bundles in {tmp_path / 'empty'}"
    asked(tmp_path)
    (bundle,) = bundles_of(tmp_path)
    good = bundle.read_bytes()
    bundle.write_bytes(good.replace(b'"margin":0.01', b'"margin":0.09'))
    said = do(tmp_path)[-1]
    assert "0 item(s) done, 1 bundle(s) refused" in said and said.endswith("; bring it again")
    bundle.write_bytes(good[: len(good) // 2])
    assert do(tmp_path)[-1] == "0 item(s) done, 1 bundle(s) not all there yet: run it again when they are"
    bundle.write_bytes(good)
    assert do(tmp_path)[-1] == "1 item(s) done, nothing more to do"


def test_a_worker_that_goes_on_takes_a_bundle_that_is_brought_again(tmp_path: Path) -> None:
    asked(tmp_path)
    (bundle,) = bundles_of(tmp_path)
    good = bundle.read_bytes()
    bundle.write_bytes(good.replace(b'"margin":0.01', b'"margin":0.09'))
    queue = WorkQueue(tmp_path, harness_version(), None, lambda text: None)
    assert not list(queue.open_items()) and queue.refused
    time.sleep(0.02)
    bundle.write_bytes(good)
    assert len(list(queue.open_items())) == 1 and not queue.refused


def test_a_result_of_another_harness_is_refused_with_the_remedy(tmp_path: Path) -> None:
    sandbox = asked(tmp_path)
    do(tmp_path)
    rewritten(results_of(tmp_path)[0], harness=OTHER)
    assert f"; use the {layout.PROGRAM} of this folder" in refusals(sandbox)


def test_bundles_asked_for_anew_are_withdrawn_and_those_that_an_ended_run_withdrew_are_wanted_again(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tilecast.sandbox.bundle_box.harness_version", lambda: OTHER)
    asked(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(worker, "JudgeProcess", FormulaJudge)
    sandbox = asked(tmp_path)
    assert not [line for line in do(tmp_path) if "refused" in line]
    assert ask(sandbox).status is EvaluationStatus.PASSED
    asked(tmp_path, "run2").finished()
    assert do(tmp_path)[-1] == "0 item(s) done, nothing more to do"
    again = asked(tmp_path, "run2")
    do(tmp_path)
    assert ask(again).status is EvaluationStatus.PASSED
