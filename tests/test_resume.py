"""Killed and taken up again, against a local server that speaks the OpenAI API: nothing answered is paid for twice."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Reply
from loop_parts import OTHER, TINY, WRONG, unrecorded, variant

from tilecast.agent.config import home
from tilecast.agent.engine import open_record
from tilecast.agent.record.store import RunLog

HERE = Path(__file__).parent
POINTS = [(b, w, s) for b in (64, 128, 256, 512) for w in (1, 2, 4, 8) for s in (1, 2, 3, 4)]
POOL = [variant(*p) for p in POINTS] + [WRONG, unrecorded(1), unrecorded(2), OTHER]


@dataclass
class SameAnswers:
    """Answers each new prompt with the next candidate of a shuffled list, and a repeated prompt as before."""

    seed: int = 3
    latency_s: Callable[[], float] = lambda: 0.0
    by_prompt: dict[str, int] = field(default_factory=dict)

    def __call__(self, body: dict[str, Any], number: int) -> Reply:
        """The reply to one request."""
        order = random.Random(self.seed).sample(POOL, len(POOL))
        prompt = json.dumps(body["messages"], sort_keys=True)
        place = self.by_prompt.setdefault(prompt, len(self.by_prompt))
        source = order[place % len(order)].source
        return Reply(text=f"Another try.\n```python\n{source}```\n", latency_s=self.latency_s())


class Run:
    """``tilecast optimize`` as a process of its own, which can be killed and taken up again."""

    def __init__(self, url: str, folder: Path, in_flight: int = 1, evals: int = 12, **environment: str) -> None:
        self.environment = {**os.environ, "OPENAI_BASE_URL": url, "TILECAST_HOME": str(folder), **environment}
        self.environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        self.folder, self.in_flight, self.evals = folder, in_flight, evals
        self.process: subprocess.Popen[str] | None = None

    def start(self, resume: str | None = None, *more: str) -> subprocess.Popen[str]:
        """Begin, or take up a run."""
        fresh = ["--model", "fake", "--device", f"replay:{TINY}", "--forecaster", "none", "--seed", "1"]
        fresh += ["--max-evals", str(self.evals), "--in-flight", str(self.in_flight)]
        # Its own kernel is left out, so that the first proposal is the model's.
        what = [str(self.folder / "reference.py"), *fresh] if resume is None else ["--resume", resume]
        command = [sys.executable, str(HERE / "loop_parts.py"), "optimize", *what, "--json", *more]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        return self.process

    def finish(self, limit_s: float = 100) -> dict[str, Any]:
        """Wait for the document that it prints."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=limit_s)
        assert self.process.returncode in (0, 1), err
        document: dict[str, Any] = json.loads(out)
        return document

    def kill(self) -> None:
        """As the system would: no warning."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def log(self) -> RunLog | None:
        """The record of the only run, if it has begun."""
        record = open_record(None, self.folder)
        found = record.runs()
        try:
            return record.open(found[0].run, time.monotonic) if found else None
        finally:
            record.close()


@pytest.fixture
def problem_home(tmp_path: Path) -> Path:
    """A home that also holds the small problem without its kernel, under the name that is recorded."""
    folder = home().parent / "scale"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text((TINY / "reference.py").read_text())
    return folder


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how often a run was killed."""
    ledger = {name: value["spent"] for name, value in result["ledger"].items() if name != "minutes"}
    return {"best": result["best"] and result["best"]["source_sha256"], "ledger": ledger, **result["candidates"]}


def in_flight(log: RunLog) -> int:
    """Requests and evaluations that were under way when the process ended."""
    return len(log.state.open_calls) + sum(c.in_flight_gpu_s is not None for c in log.state.candidates.values())


def evaluating(log: RunLog) -> bool:
    """Whether a candidate is on the device."""
    return any(c.in_flight_gpu_s is not None for c in log.state.candidates.values())


def check_nothing_twice(server: FakeOpenAI, log: RunLog) -> None:
    """No prompt asked again after its answer was recorded, no candidate evaluated again after its result was."""
    answered = Counter(server.answered())
    recorded = {e.event.key for e in log.events("call_answered")}  # type: ignore[union-attr]
    assert len(recorded) == log.state.calls == len(log.events("call_answered"))
    # What was asked more often than once was in flight at a kill, and is charged as lost.
    assert sum(answered.values()) - len(answered) <= log.state.lost_calls
    evaluated = Counter(e.event.index for e in log.events("evaluated"))  # type: ignore[union-attr]
    assert all(count == 1 for count in evaluated.values())
    sources = [c.sha256 for c in log.state.candidates.values() if c.counted]
    assert len(sources) == len(set(sources))


def check_sums(result: dict[str, Any], log: RunLog) -> None:
    """The ledger is the sum of the record: results, and what was in flight at a kill."""
    lost = [e.event for e in log.events("evaluation_lost")]
    lost_calls = [e.event for e in log.events("call_lost")]
    answers = [e.event for e in log.events("call_answered")]
    counted = [c for c in log.state.candidates.values() if c.counted]
    spent = {name: value["spent"] for name, value in result["ledger"].items()}
    assert spent["evals"] == len(counted) + len(lost)
    assert spent["tokens"] == sum(a.answer.usage.tokens for a in answers) + sum(c.charged.tokens for c in lost_calls)  # type: ignore[union-attr]
    assert spent["evals"] <= result["ledger"]["evals"]["limit"]


def undisturbed(folder: Path, tmp_path: Path, **run: Any) -> dict[str, Any]:
    with FakeOpenAI(SameAnswers()) as server:
        quiet = Run(server.url, folder, **run)
        quiet.environment["TILECAST_HOME"] = str(tmp_path / "undisturbed")
        quiet.start()
        return figures(quiet.finish())


def kill_and_resume(
    folder: Path, kills: int, moment: Callable[[Run], None], **run: Any
) -> tuple[dict[str, Any], RunLog, int]:
    """Run, killed so many times, to its end; the number of things in flight at all kills together comes last."""
    latency = run.pop("latency_s", lambda: 0.0)
    flying = 0
    with FakeOpenAI(SameAnswers(latency_s=latency)) as server:
        job = Run(server.url, folder, **run)
        job.start()
        for _ in range(kills):
            moment(job)
            assert job.process is not None
            if job.process.poll() is not None:
                break
            job.kill()
            log = job.log()
            if log is None:
                job.start()
                continue
            flying += in_flight(log)
            job.start(log.run_id)
        result = job.finish(600)
        log = job.log()
        assert log is not None
        check_nothing_twice(server, log)
        check_sums(result, log)
    return result, log, flying


def between_steps(seen: set[int]) -> Callable[[Run], None]:
    """Wait until one more candidate has its result and is not judged yet: nothing is in flight then."""

    def wait(job: Run) -> None:
        assert job.process is not None
        while job.process.poll() is None:
            log = job.log()
            waiting = log.state.unfinished if log is not None else None
            if waiting is not None and waiting.result is not None and waiting.index not in seen and not in_flight(log):  # type: ignore[arg-type]
                seen.add(waiting.index)
                return
            time.sleep(0.03)

    return wait


def test_killed_between_steps_the_end_is_that_of_an_undisturbed_run(problem_home: Path, tmp_path: Path) -> None:
    expected = undisturbed(problem_home, tmp_path, evals=6)
    result, log, flying = kill_and_resume(problem_home, 2, between_steps(set()), evals=6, LOOP_PAUSE_S="0.4")
    assert flying == 0 and log.state.sessions == 3
    assert figures(result) == expected


def at_random(chance: random.Random, most_s: float) -> Callable[[Run], None]:
    """Wait until the session has begun one more request or evaluation (drawn), and then a random time."""
    sessions = 0
    seen: Counter[str] = Counter()

    def wait(job: Run) -> None:
        nonlocal sessions
        assert job.process is not None
        kind = chance.choice(["call_reserved", "evaluation_started"])
        while job.process.poll() is None:
            log = job.log()
            if log is not None and log.state.sessions > sessions and len(log.events(kind)) > seen[kind]:
                sessions = log.state.sessions
                seen.update(
                    {name: len(log.events(name)) - seen[name] for name in ("call_reserved", "evaluation_started")}
                )
                break
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, most_s))

    return wait


def test_killed_at_random_with_requests_in_flight_nothing_is_repeated(problem_home: Path) -> None:
    chance = random.Random(11)
    result, log, _ = kill_and_resume(
        problem_home,
        4,
        at_random(chance, 0.8),
        in_flight=3,
        latency_s=lambda: chance.uniform(0.0, 0.3),
        LOOP_HOLD_S="0.05",
    )
    assert result["stopped_by"] == "evals" and log.state.lost_calls + result["best"]["recorded"]


@pytest.mark.acceptance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("in_flight_at_once", [1, 4])
def test_twenty_kills(problem_home: Path, tmp_path: Path, in_flight_at_once: int) -> None:
    chance = random.Random(in_flight_at_once)
    result, log, flying = kill_and_resume(
        problem_home,
        20,
        at_random(chance, 1.0),
        in_flight=in_flight_at_once,
        evals=60,
        latency_s=lambda: chance.uniform(0.0, 1.0),
        LOOP_HOLD_S="0.3",
        LOOP_PAUSE_S="0.3",
    )
    print(
        f"sessions {log.state.sessions}, lost calls {log.state.lost_calls}, "
        f"lost evaluations {len(log.events('evaluation_lost'))}, in flight at kills {flying}",
        figures(result),
    )
    assert log.state.sessions == 21


@pytest.mark.acceptance
@pytest.mark.timeout(900)
def test_twenty_kills_with_nothing_in_flight(problem_home: Path, tmp_path: Path) -> None:
    expected = undisturbed(problem_home, tmp_path, evals=22)
    result, log, flying = kill_and_resume(problem_home, 20, between_steps(set()), evals=22, LOOP_PAUSE_S="0.5")
    print(f"sessions {log.state.sessions}", figures(result))
    assert flying == 0 and log.state.sessions == 21
    assert figures(result) == expected


def test_without_its_checkpoint_a_run_goes_on_all_the_same(problem_home: Path) -> None:
    with FakeOpenAI(SameAnswers()) as server:
        job = Run(server.url, problem_home, evals=3)
        job.start()
        first = job.finish()
        for file in Path(first["run_dir"]).glob("checkpoint*"):
            file.unlink()
        job.start(first["run"], "--max-evals", "5")
        second = job.finish()
    assert second["ledger"]["evals"] == {"spent": 5, "limit": 5}
    assert second["candidates"]["measured"] + second["candidates"]["rejected"] == 5


def wait_for(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_ctrl_c_once_prints_the_result_so_far(problem_home: Path) -> None:
    with FakeOpenAI(SameAnswers(latency_s=lambda: 0.2)) as server:
        job = Run(server.url, problem_home, evals=12)
        process = job.start()
        wait_for(lambda: (log := job.log()) is not None and log.state.best is not None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert result["stopped_by"] == "interrupted" and result["best"]["status"] == "PASSED"
    assert "finishing the current step (" in err


def test_ctrl_c_says_what_it_waits_for_until_that_is_done(problem_home: Path) -> None:
    with FakeOpenAI(SameAnswers()) as server:
        job = Run(server.url, problem_home, evals=12, LOOP_HOLD_S="8")
        process = job.start()
        wait_for(lambda: (log := job.log()) is not None and evaluating(log))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert re.search(
        r"warning: finishing the current step \(candidate 0: verifying \S+\); once more kills it\n", err
    ), err
    assert re.search(r"\nstopping after candidate 0: verifying \S+ \(5 s\)\n", err), err
    assert "stopping after" not in err.partition("stopped by interrupted")[2]


def test_ctrl_c_while_an_answer_is_awaited_does_not_wait_for_it(problem_home: Path) -> None:
    with FakeOpenAI(SameAnswers(latency_s=lambda: 60.0)) as server:
        job = Run(server.url, problem_home, evals=12)
        process = job.start()
        wait_for(lambda: bool(server.requests))
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert time.monotonic() - began < 20
    assert process.returncode == 130, err
    assert json.loads(out)["best"] is None


def test_ctrl_c_twice_leaves_at_once_and_leaves_no_process_behind(problem_home: Path) -> None:
    with FakeOpenAI(SameAnswers()) as server:
        job = Run(server.url, problem_home, evals=12, LOOP_HOLD_S="60")
        process = job.start()
        wait_for(lambda: (log := job.log()) is not None and evaluating(log))
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=15)
        assert process.returncode == 130, err
        log = job.log()
        assert log is not None
        job.environment["LOOP_HOLD_S"] = "0"
        job.start(log.run_id)
        result = job.finish()
    assert result["stopped_by"] == "evals" and result["ledger"]["evals"]["spent"] == 12
