"""Whole runs through a bundle folder: work done in a copy of it, left and taken up, killed; what is not to be used is refused."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from bundle_parts import STARTED, OptimizeProcess, bundles_of, copied, do_work, results_of, start_worker, wait_for

from tilecast.agent.config import home
from tilecast.agent.engine import open_record
from tilecast.agent.record.events import EvaluationDone, Noted
from tilecast.agent.record.store import RunLog

EVALS = 5


def logged(home_dir: Path) -> RunLog:
    record = open_record(None, home_dir)
    return record.open(record.find("last"), time.monotonic)


def rounds(run: OptimizeProcess, away: Path, limit: int = 30) -> int:
    """Copy, work, copy back, until the run is over; how often."""
    assert run.process is not None
    for count in range(limit):
        have = len(results_of(away)) if away.exists() else 0
        wait_for(lambda: run.process.poll() is not None or _has_open(run.folder))
        if run.process.poll() is not None:
            return count
        do_work(copied(run.folder, away))
        assert len(results_of(away)) > have
        copied(away / "results", run.folder / "results")
        time.sleep(1.5)
    raise AssertionError("the run did not end")


def _has_open(folder: Path) -> bool:
    wanted = sum(len(json.loads(f.read_bytes().partition(b"\n")[2])["items"]) for f in bundles_of(folder))
    answered = {path.name.partition("-")[0] for path in results_of(folder)}
    asked = {item["id"] for f in bundles_of(folder) for item in json.loads(f.read_bytes().partition(b"\n")[2])["items"]}
    return wanted > 0 and not asked <= answered


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """A process of a test that failed would hold locks that the next ones wait for."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_whole_run_whose_work_is_done_in_a_copy_of_the_folder(tmp_path: Path) -> None:
    run = OptimizeProcess(tmp_path / "here", home(), "--max-evals", str(EVALS))
    run.start()
    trips = rounds(run, tmp_path / "there")
    document, said = run.finish()
    assert document["best"]["status"] == "PASSED" and document["ledger"]["evals"]["spent"] == EVALS
    assert document["candidates"]["measured"] == EVALS and trips <= 4
    assert "there: python3 here/tilecast-worker.pyz --once" in said and "3 item(s) of work in" in said
    assert "4 more item(s) in" in said and "run the worker again" in said
    first = json.loads(bundles_of(tmp_path / "here")[0].read_bytes().partition(b"\n")[2])
    assert [item["op"] for item in first["items"]] == ["preflight", "baselines", "bench"]
    log = logged(home())
    assert log.state.preflight is not None and log.state.preflight.device.name == "NVIDIA H200"
    best = log.state.best_state()
    assert best is not None and best.result is not None and "confirmed" in best.result.details


def test_left_with_ctrl_c_and_taken_up_when_the_results_are_there(tmp_path: Path) -> None:
    run = OptimizeProcess(tmp_path / "here", home(), "--max-evals", str(EVALS))
    process = run.start()
    wait_for(lambda: bundles_of(tmp_path / "here"))
    process.send_signal(signal.SIGINT)
    document, said = run.finish(130)
    assert document["stopped_by"] == "interrupted" and document["ledger"]["evals"]["spent"] == 0
    assert f"--resume {document['run']}" in said
    written = bundles_of(tmp_path / "here")
    do_work(tmp_path / "here")
    process = run.start("last")
    wait_for(lambda: len(bundles_of(tmp_path / "here")) > len(written) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    document, _ = run.finish(130)
    # The start kernel's result came in while nobody waited; the ones in flight are charged for nothing.
    assert document["ledger"]["evals"]["spent"] == 1 and bundles_of(tmp_path / "here")[: len(written)] == written
    run.start("last")
    rounds(run, tmp_path / "there")
    document, _ = run.finish()
    assert document["ledger"]["evals"]["spent"] == EVALS
    log = logged(home())
    done = [stored.event for stored in log.events("evaluated")]
    assert len(done) == EVALS == len({event.index for event in done if isinstance(event, EvaluationDone)})
    assert not log.events("evaluation_lost") and log.events("evaluation_left")


def test_a_run_killed_while_it_waits_is_charged_nothing_for_what_goes_on_elsewhere(tmp_path: Path) -> None:
    run = OptimizeProcess(tmp_path / "work", home(), "--max-evals", "2")
    process = run.start()
    wait_for(lambda: bundles_of(tmp_path / "work"))
    do_work(tmp_path / "work")
    wait_for(lambda: len(bundles_of(tmp_path / "work")) == 2)
    process.kill()
    process.communicate()
    run.start("last")
    rounds(run, tmp_path / "there")
    document, _ = run.finish()
    assert document["ledger"]["evals"]["spent"] == 2 and not logged(home()).events("evaluation_lost")


def test_a_worker_killed_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    run = OptimizeProcess(tmp_path / "work", home(), "--max-evals", "2")
    run.start()
    wait_for(lambda: bundles_of(tmp_path / "work"))
    worker = start_worker(tmp_path / "work", hold_s=0.7)
    wait_for(lambda: len(results_of(tmp_path / "work")) == 1)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    before = results_of(tmp_path / "work")
    assert len(before) == 1
    rounds(run, tmp_path / "there")
    run.finish()
    assert before[0] in results_of(tmp_path / "work")
    by_item = [path.name.partition("-")[0] for path in results_of(tmp_path / "work")]
    assert len(by_item) == len(set(by_item)), "an item that was finished is not done again"


def test_a_worker_ends_cleanly_on_ctrl_c_and_on_sigterm(tmp_path: Path) -> None:
    run = OptimizeProcess(tmp_path / "work", home(), "--max-evals", "1")
    process = run.start()
    wait_for(lambda: bundles_of(tmp_path / "work"))
    for number in (signal.SIGINT, signal.SIGTERM):
        worker = start_worker(tmp_path / "work", hold_s=60)
        assert worker.stdout is not None
        wait_for(partial(_says, worker.stdout, "device NVIDIA"))
        worker.send_signal(number)
        out, _ = worker.communicate(timeout=20)
        assert worker.returncode == 130 and "run it again to go on" in out and "Traceback" not in out
    process.kill()
    process.communicate()
    assert not results_of(tmp_path / "work")


def _says(stream: IO[str], text: str) -> bool:
    return text in stream.readline()


def notes() -> list[str]:
    """What the record notes of the last run."""
    return [s.event.text for s in logged(home()).events("noted") if isinstance(s.event, Noted)]


def refused_then_finished(run: OptimizeProcess, said: str) -> None:
    """The run says and records the refusal, and ends well once a good result is there."""
    document, err = run.finish()
    assert document["best"] is not None and document["ledger"]["evals"]["spent"] == 1
    assert any(said in note for note in notes()), (notes(), err)


@pytest.fixture
def waiting(tmp_path: Path) -> OptimizeProcess:
    """A run of one evaluation that waits for its first bundle, which was done in a copy of the folder."""
    run = OptimizeProcess(tmp_path / "here", home(), "--max-evals", "1")
    run.start()
    wait_for(lambda: bundles_of(tmp_path / "here"))
    do_work(copied(tmp_path / "here", tmp_path / "there"))
    return run


def bring(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def altered(blob: bytes) -> bytes:
    """The same length, one figure changed."""
    place = blob.index(b'"seconds":') + len(b'"seconds":')
    return blob[:place] + (b"9" if blob[place : place + 1] != b"9" else b"8") + blob[place + 1 :]


def test_an_altered_result_is_refused_and_a_good_one_then_taken(waiting: OptimizeProcess, tmp_path: Path) -> None:
    for path in results_of(tmp_path / "there"):
        target = tmp_path / "here" / path.relative_to(tmp_path / "there")
        bring(path, target)
        target.write_bytes(altered(path.read_bytes()))
    time.sleep(2.5)
    assert waiting.process is not None and waiting.process.poll() is None
    copied(tmp_path / "there" / "results", tmp_path / "here" / "results")
    refused_then_finished(waiting, "altered: its content has hash")


def test_half_copied_files_are_waited_for(waiting: OptimizeProcess, tmp_path: Path) -> None:
    for path in results_of(tmp_path / "there"):
        target = tmp_path / "here" / path.relative_to(tmp_path / "there")
        bring(path, target)
        target.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    time.sleep(2.5)
    assert waiting.process is not None and waiting.process.poll() is None
    copied(tmp_path / "there" / "results", tmp_path / "here" / "results")
    waiting.finish()
    assert not [note for note in notes() if "refused" in note]


def test_second_results_of_the_same_items_are_refused(waiting: OptimizeProcess, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "there" / "results")
    second = copied(tmp_path / "here", tmp_path / "second")
    do_work(tmp_path / "there")
    time.sleep(0.1)
    do_work(second)
    copied(second / "results", tmp_path / "there" / "results")
    assert len(results_of(tmp_path / "there")) == 2 * len(results_of(second))
    copied(tmp_path / "there" / "results", tmp_path / "here" / "results")
    refused_then_finished(waiting, "doubled: its item was answered by")


def test_results_of_another_run_are_stale(waiting: OptimizeProcess, tmp_path: Path) -> None:
    other = OptimizeProcess(tmp_path / "other", tmp_path / "other-home", "--max-evals", "1")
    process = other.start()
    wait_for(lambda: bundles_of(tmp_path / "other"))
    do_work(tmp_path / "other")
    process.kill()
    process.communicate()
    (mine,) = (tmp_path / "there" / "results").iterdir()
    for path in results_of(tmp_path / "other"):
        bring(path, tmp_path / "here" / "results" / mine.name / path.name)
    time.sleep(2.5)
    copied(tmp_path / "there" / "results", tmp_path / "here" / "results")
    refused_then_finished(waiting, "stale: it answers bundle")


def test_a_bundle_that_was_altered_on_the_way_is_refused_by_the_worker(tmp_path: Path) -> None:
    run = OptimizeProcess(tmp_path / "here", home(), "--max-evals", "1")
    run.start()
    wait_for(lambda: bundles_of(tmp_path / "here"))
    away = copied(tmp_path / "here", tmp_path / "there")
    (bundle,) = bundles_of(away)
    bundle.write_bytes(bundle.read_bytes().replace(b'"margin":0.01', b'"margin":0.09'))
    said = do_work(away)
    assert "altered: its content has hash" in said and not results_of(away)
    copied(away / "refusals", tmp_path / "here" / "refusals")
    copied(tmp_path / "here", away)
    do_work(away)
    time.sleep(1.5)
    copied(away / "results", tmp_path / "here" / "results")
    refused_then_finished(run, "altered: its content has hash")


def test_a_worker_process_needs_a_folder_that_is_there(tmp_path: Path) -> None:
    worker: subprocess.Popen[str] = start_worker(tmp_path / "nowhere", "--once")
    out, _ = worker.communicate(timeout=30)
    assert worker.returncode == 2 and "no such folder" in out and "Traceback" not in out
