"""Slow proofs on several raylets: faults of all kinds in one run, a node that joins, and a driver that is killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_parts import evaluators, freeze, local_cluster, raylet, replaying, thaw
from loop_parts import TINY, Scripted, make_request, making, variant

from tilecast.agent.engine import Engine, open_record
from tilecast.agent.progress import Finished, Progress

pytest.importorskip("ray")

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]
POINTS = [variant(b, w, s) for b in (64, 128, 256, 512) for w in (1, 2, 4, 8) for s in (1, 2, 3)]


def check(result: Any, engine: Engine, count: int) -> Any:
    log = open_record(None, engine.request.home).open(result.run, lambda: 0.0)
    done = [stored.event.index for stored in log.events(kind="evaluated")]  # type: ignore[union-attr]
    assert sorted(done) == list(range(count)), "none lost, none twice"
    assert result.ledger.evals.spent == count
    plain = Engine(make_request(), make=making(Scripted(POINTS[:count]))).run()
    assert result.best.source_sha256 == plain.best.source_sha256  # type: ignore[union-attr]
    assert result.ledger.gpu_seconds.spent == pytest.approx(plain.ledger.gpu_seconds.spent)
    return log


def test_a_killed_evaluator_a_killed_raylet_and_a_node_that_is_cut_off() -> None:
    at: dict[int, Any] = {}
    seen = 0

    def listen(event: Progress) -> None:
        nonlocal seen
        if isinstance(event, Finished):
            seen += 1
            if seen in at:
                threading.Thread(target=at[seen], daemon=True).start()

    with local_cluster(nodes=3, cpus=2) as cluster:

        def node() -> Any:
            return next(n for n in cluster.worker_nodes if evaluators(n))

        def cut_off() -> None:
            stopped = node()
            freeze(stopped)
            time.sleep(12)
            thaw(stopped)

        at[6] = lambda: os.kill(evaluators(node())[0], signal.SIGKILL)
        at[14] = lambda: os.kill(raylet(node()), signal.SIGKILL)
        at[24] = cut_off
        sandbox = replaying(cluster.address, per_node=2, replay_pace=2.0, lost_after_s=5.0)
        engine = Engine(make_request(), [listen], make=making(Scripted(POINTS), sandbox))
        result = engine.run()
    log = check(result, engine, len(POINTS))
    told = " ".join(stored.event.text for stored in log.events(kind="noted"))
    assert "its process ended" in told and "its node went away" in told


def test_a_node_that_joins_takes_part() -> None:
    with local_cluster(nodes=1) as cluster:
        seen = 0

        def listen(event: Progress) -> None:
            nonlocal seen
            if isinstance(event, Finished):
                seen += 1
                if seen == 4:
                    cluster.add_node(num_cpus=1, wait=False)

        sandbox = replaying(cluster.address, replay_pace=1.5)
        engine = Engine(make_request(), [listen], make=making(Scripted(POINTS[:36]), sandbox))
        result = engine.run()
    log = check(result, engine, 36)
    names = {c.result.details["worker"]["node"] for c in log.state.candidates.values() if c.result}
    assert len(names) == 2


def test_a_killed_driver_is_resumed_on_a_new_cluster(tmp_path: Path) -> None:
    (tmp_path / "tilecast.toml").write_text(f'[ray]\nevaluators = "replay:{TINY}"\nper_node = 2\nreplay_pace = 1.0\n')
    parts = Path(__file__).parent / "loop_parts.py"
    begin = [sys.executable, str(parts), "optimize", str(TINY), "--device", "ray:local", "--forecaster", "none"]
    begin += ["--model", f"replay:{TINY}", "--max-evals", "30", "--json"]
    home = Path(os.environ["TILECAST_HOME"])
    with subprocess.Popen(begin, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as driver:
        assert driver.stderr is not None
        judged = 0
        for line in driver.stderr:
            judged += line.startswith("[")
            if judged == 6:
                driver.kill()
                break
    run = sorted((home / "runs").iterdir())[-1].name
    again = [sys.executable, str(parts), "optimize", "--resume", run, "--max-evals", "30", "--json"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    log = open_record(None, home).open(run, lambda: 0.0)
    evaluated = [stored.event.index for stored in log.events(kind="evaluated")]  # type: ignore[union-attr]
    assert len(evaluated) == len(set(evaluated))
    lost = len(log.events(kind="evaluation_lost"))
    assert lost >= 1 and result["ledger"]["evals"]["spent"] == len(evaluated) + lost == 30
